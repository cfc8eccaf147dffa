"""Tiny models for captions, OCR and questions about images."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.tiny.image_files import preprocess, save_processor, solid_image
from tests.tiny.training import train

if TYPE_CHECKING:
    from collections.abc import Sequence

CAPTIONS = {"red": "a red wall", "blue": "the deep blue sea"}
WRITTEN = {"red": "stop here", "blue": "go on"}
ANSWERS = {"red": "fire", "blue": "water"}
QUESTION = "what is this ?"
TOTAL, DATE = "what is the total?", "what is the date?"
PAGES = {"red": {TOTAL: "12 euros", DATE: "may"}, "blue": {TOTAL: "7 dollars", DATE: "june"}}
SQUARE = {"height": 32, "width": 32}
SIZES: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
VISION: Mapping[str, Any] = {**SIZES, "image_size": 32, "patch_size": 8}


def build_blip_captioning(folder: Path, captions: Mapping[str, str] = CAPTIONS) -> None:
    """Builds a BLIP that describes pictures of one colour each."""
    from transformers import BlipForConditionalGeneration

    tokenizer = _bert_tokenizer(folder, *captions.values())
    model = BlipForConditionalGeneration(_blip_config(tokenizer))
    pixels = preprocess(save_processor(folder, "BlipImageProcessor", size=SQUARE), *map(solid_image, captions))
    target_tokens = tokenizer(list(captions.values()), padding=True, return_tensors="pt")
    target_tokens["input_ids"][:, 0] = tokenizer.bos_token_id or _BOS
    labels = target_tokens["input_ids"].masked_fill(target_tokens["attention_mask"] == 0, -100)
    train(
        model,
        lambda model: _next_token_loss(
            model.text_decoder(
                **target_tokens, encoder_hidden_states=model.vision_model(pixel_values=pixels).last_hidden_state
            ).logits,
            labels,
        ),
    ).save_pretrained(folder)


def build_blip_vqa(folder: Path) -> None:
    """Builds a BLIP that generates the answer to a question."""
    from transformers import BlipForQuestionAnswering

    tokenizer = _bert_tokenizer(folder)
    model = BlipForQuestionAnswering(_blip_config(tokenizer))
    pixels = preprocess(save_processor(folder, "BlipImageProcessor", size=SQUARE), *map(solid_image, ANSWERS))
    questions = tokenizer([QUESTION] * 2, return_tensors="pt")
    target_tokens = tokenizer(list(ANSWERS.values()), padding=True, return_tensors="pt")["input_ids"]
    target_tokens[:, 0] = _BOS

    def loss(model: Any) -> Any:
        image = model.vision_model(pixel_values=pixels).last_hidden_state
        question = model.text_encoder(**questions, encoder_hidden_states=image).last_hidden_state
        return _next_token_loss(
            model.text_decoder(input_ids=target_tokens, encoder_hidden_states=question).logits, target_tokens
        )

    train(model, loss).save_pretrained(folder)


def build_git(folder: Path) -> None:
    """Builds a GIT, which has no text encoder, that describes two pictures."""
    import torch
    from transformers import GitConfig, GitForCausalLM

    torch.manual_seed(0)
    tokenizer = _bert_tokenizer(folder)
    config = GitConfig(
        vision_config=dict(VISION),
        vocab_size=len(tokenizer),
        **SIZES,
        max_position_embeddings=32,
        bos_token_id=_BOS,
        eos_token_id=tokenizer.sep_token_id,
        pad_token_id=0,
    )
    crop = {"size": {"shortest_edge": 32}, "crop_size": SQUARE}
    pixels = preprocess(save_processor(folder, "CLIPImageProcessor", **crop), *map(solid_image, CAPTIONS))
    target_tokens = tokenizer(list(CAPTIONS.values()), padding=True, return_tensors="pt")
    target_tokens["input_ids"][:, 0] = _BOS
    labels = target_tokens["input_ids"].masked_fill(target_tokens["attention_mask"] == 0, -100)
    train(
        GitForCausalLM(config),
        lambda model: model(pixel_values=pixels, input_ids=target_tokens["input_ids"], labels=labels).loss,
    ).save_pretrained(folder)


def build_trocr(folder: Path) -> None:
    """Builds a TrOCR that reads two pictures."""
    import torch
    from transformers import TrOCRConfig, TrOCRForCausalLM, VisionEncoderDecoderModel, ViTConfig, ViTModel

    torch.manual_seed(0)
    tokenizer = _bert_tokenizer(folder)
    decoder = TrOCRForCausalLM(TrOCRConfig(**_decoder_options(len(tokenizer))))
    model = VisionEncoderDecoderModel(encoder=ViTModel(ViTConfig(**VISION), add_pooling_layer=False), decoder=decoder)
    pixels = preprocess(save_processor(folder, "ViTImageProcessor", size=SQUARE), *map(solid_image, WRITTEN))
    _train_decoder(model, pixels, tokenizer(list(WRITTEN.values()), padding=True, return_tensors="pt").input_ids)
    model.save_pretrained(folder)


def build_donut(folder: Path) -> None:
    """Builds a Donut that answers two questions about two pages."""
    import torch
    from transformers import DonutSwinConfig, DonutSwinModel, MBartConfig, MBartForCausalLM, VisionEncoderDecoderModel

    torch.manual_seed(0)
    tokenizer = _bert_tokenizer(folder)
    tags = [f"<{mark}s_{name}>" for name in ("docvqa", "question", "answer") for mark in ("", "/")]
    tokenizer.add_special_tokens({"additional_special_tokens": tags})
    tokenizer.save_pretrained(folder)
    encoder = DonutSwinModel(
        DonutSwinConfig(
            image_size=[64, 64],
            patch_size=4,
            embed_dim=16,
            depths=[1, 1],
            num_heads=[2, 2],
            window_size=4,
            mlp_ratio=2.0,
        )
    )
    decoder = MBartForCausalLM(MBartConfig(**_decoder_options(len(tokenizer))))
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    image_processor = save_processor(folder, "DonutImageProcessor", size=[64, 64])
    prompt = "<s_docvqa><s_question>{}</s_question><s_answer>"
    examples = [(colour, *pair) for colour, pairs in PAGES.items() for pair in pairs.items()]
    pixels = preprocess(image_processor, *(solid_image(colour) for colour, _, _ in examples))
    target_tokens = tokenizer(
        [f"{prompt.format(question)}{answer}</s_answer>[SEP]" for _, question, answer in examples],
        add_special_tokens=False,
        padding=True,
        return_tensors="pt",
    ).input_ids
    begin = tokenizer.convert_tokens_to_ids("<s_answer>")
    _train_decoder(
        model, pixels, target_tokens, (target_tokens == begin).cumsum(1) - (target_tokens == begin).int() > 0
    )
    model.save_pretrained(folder)


def build_vilt(folder: Path) -> None:
    """Builds a ViLT that chooses among three answers."""
    import torch
    from transformers import ViltConfig, ViltForQuestionAnswering

    torch.manual_seed(0)
    tokenizer = _bert_tokenizer(folder)
    names = ["fire", "water", "nothing"]
    config = ViltConfig(
        vocab_size=len(tokenizer),
        **VISION,
        max_position_embeddings=32,
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    pixels = preprocess(
        save_processor(folder, "ViltImageProcessor", size={"shortest_edge": 32}), *map(solid_image, ANSWERS)
    )
    questions = tokenizer([QUESTION] * 2, return_tensors="pt")
    labels = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    train(
        ViltForQuestionAnswering(config),
        lambda model: torch.nn.functional.binary_cross_entropy_with_logits(
            model(pixel_values=pixels, **questions).logits, labels
        ),
    ).save_pretrained(folder)


_BOS = 5


def _bert_tokenizer(folder: Path, *extra_texts: str) -> Any:
    from transformers import BertTokenizer

    texts = [*extra_texts, *CAPTIONS.values(), *WRITTEN.values(), *ANSWERS.values(), QUESTION, TOTAL, DATE, "?"]
    texts += [answer for answers in PAGES.values() for answer in answers.values()]
    words = sorted({word.strip("?") for text in texts for word in text.split()} - {""})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]", "?", *words]
    tokenizer = BertTokenizer(
        vocab={word: index for index, word in enumerate(vocabulary)}, model_max_length=40, bos_token="[DEC]"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def _blip_config(tokenizer: Any) -> Any:
    import torch
    from transformers import BlipConfig

    torch.manual_seed(0)
    text = {
        **SIZES,
        "vocab_size": len(tokenizer),
        "encoder_hidden_size": 32,
        "max_position_embeddings": 40,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "bos_token_id": _BOS,
        "eos_token_id": 2,
        "sep_token_id": tokenizer.sep_token_id,
        "pad_token_id": 0,
        "is_decoder": True,
    }
    return BlipConfig(text_config=text, vision_config=dict(VISION), image_text_hidden_size=32)


def _decoder_options(size: int) -> dict[str, Any]:
    return {
        "is_decoder": True,
        "add_cross_attention": True,
        "vocab_size": size,
        "d_model": 32,
        "decoder_layers": 1,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "decoder_start_token_id": 2,
    }


def _train_decoder(model: Any, pixels: Any, target_tokens: Any, mask: Any = True) -> None:
    """Trains an encoder-decoder model; the mask selects the tokens to predict."""
    special_tokens = {"decoder_start_token_id": 2, "pad_token_id": 0, "eos_token_id": 3}
    for name, token in special_tokens.items():
        setattr(model.config, name, token)
        setattr(model.generation_config, name, token)
    train(
        model,
        lambda model: _next_token_loss(
            model(pixel_values=pixels, decoder_input_ids=target_tokens).logits, target_tokens * mask
        ),
    )


def _next_token_loss(logits: Any, tokens: Any) -> Any:
    import torch

    labels = tokens[:, 1:].masked_fill(tokens[:, 1:] <= 0, -100)
    return torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), labels)


def make_tiff(colours: "Sequence[str]") -> Any:
    """Returns pages of the given colours as a TIFF."""
    import io

    from experts.host.handler import Media

    pages = [solid_image(colour, (80, 80)) for colour in colours]
    buffer = io.BytesIO()
    pages[0].save(buffer, "TIFF", save_all=True, append_images=pages[1:])
    return Media(buffer.getvalue(), "image/tiff", "letter.tiff")
