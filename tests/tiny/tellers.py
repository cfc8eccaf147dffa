"""Tiny models that put pictures into words."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.tiny.pictures import pixels, plain, processor
from tests.tiny.training import taught

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


def captioner(folder: Path, captions: Mapping[str, str] = CAPTIONS) -> None:
    """BLIP: describes pictures of one colour each."""
    from transformers import BlipForConditionalGeneration

    tokenizer = _bert_tokenizer(folder, *captions.values())
    model = BlipForConditionalGeneration(_blip(tokenizer))
    seen = pixels(processor(folder, "BlipImageProcessor", size=SQUARE), *map(plain, captions))
    said = tokenizer(list(captions.values()), padding=True, return_tensors="pt")
    said["input_ids"][:, 0] = tokenizer.bos_token_id or _BOS
    wanted = said["input_ids"].masked_fill(said["attention_mask"] == 0, -100)
    taught(
        model,
        lambda model: _next_token_loss(
            model.text_decoder(
                **said, encoder_hidden_states=model.vision_model(pixel_values=seen).last_hidden_state
            ).logits,
            wanted,
        ),
    ).save_pretrained(folder)


def teller(folder: Path) -> None:
    """BLIP: answers a question in its own words."""
    from transformers import BlipForQuestionAnswering

    tokenizer = _bert_tokenizer(folder)
    model = BlipForQuestionAnswering(_blip(tokenizer))
    seen = pixels(processor(folder, "BlipImageProcessor", size=SQUARE), *map(plain, ANSWERS))
    asked = tokenizer([QUESTION] * 2, return_tensors="pt")
    said = tokenizer(list(ANSWERS.values()), padding=True, return_tensors="pt")["input_ids"]
    said[:, 0] = _BOS

    def loss(model: Any) -> Any:
        image = model.vision_model(pixel_values=seen).last_hidden_state
        question = model.text_encoder(**asked, encoder_hidden_states=image).last_hidden_state
        return _next_token_loss(model.text_decoder(input_ids=said, encoder_hidden_states=question).logits, said)

    taught(model, loss).save_pretrained(folder)


def git(folder: Path) -> None:
    """GIT: describes two pictures, without an encoder."""
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
    seen = pixels(processor(folder, "CLIPImageProcessor", **crop), *map(plain, CAPTIONS))
    said = tokenizer(list(CAPTIONS.values()), padding=True, return_tensors="pt")
    said["input_ids"][:, 0] = _BOS
    labels = said["input_ids"].masked_fill(said["attention_mask"] == 0, -100)
    taught(
        GitForCausalLM(config),
        lambda model: model(pixel_values=seen, input_ids=said["input_ids"], labels=labels).loss,
    ).save_pretrained(folder)


def reader(folder: Path) -> None:
    """TrOCR: reads two pictures."""
    import torch
    from transformers import TrOCRConfig, TrOCRForCausalLM, VisionEncoderDecoderModel, ViTConfig, ViTModel

    torch.manual_seed(0)
    tokenizer = _bert_tokenizer(folder)
    decoder = TrOCRForCausalLM(TrOCRConfig(**_decoder(len(tokenizer))))
    model = VisionEncoderDecoderModel(encoder=ViTModel(ViTConfig(**VISION), add_pooling_layer=False), decoder=decoder)
    seen = pixels(processor(folder, "ViTImageProcessor", size=SQUARE), *map(plain, WRITTEN))
    _taught_to_write(model, seen, tokenizer(list(WRITTEN.values()), padding=True, return_tensors="pt").input_ids)
    model.save_pretrained(folder)


def document_reader(folder: Path) -> None:
    """Donut: answers two questions about two pages."""
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
    decoder = MBartForCausalLM(MBartConfig(**_decoder(len(tokenizer))))
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    kind = processor(folder, "DonutImageProcessor", size=[64, 64])
    prompt = "<s_docvqa><s_question>{}</s_question><s_answer>"
    asked = [(colour, *pair) for colour, pairs in PAGES.items() for pair in pairs.items()]
    seen = pixels(kind, *(plain(colour) for colour, _, _ in asked))
    said = tokenizer(
        [f"{prompt.format(question)}{answer}</s_answer>[SEP]" for _, question, answer in asked],
        add_special_tokens=False,
        padding=True,
        return_tensors="pt",
    ).input_ids
    begin = tokenizer.convert_tokens_to_ids("<s_answer>")
    _taught_to_write(model, seen, said, (said == begin).cumsum(1) - (said == begin).int() > 0)
    model.save_pretrained(folder)


def chooser(folder: Path) -> None:
    """ViLT: chooses among three answers."""
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
        label2id={name: at for at, name in enumerate(names)},
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    seen = pixels(processor(folder, "ViltImageProcessor", size={"shortest_edge": 32}), *map(plain, ANSWERS))
    asked = tokenizer([QUESTION] * 2, return_tensors="pt")
    wanted = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    taught(
        ViltForQuestionAnswering(config),
        lambda model: torch.nn.functional.binary_cross_entropy_with_logits(
            model(pixel_values=seen, **asked).logits, wanted
        ),
    ).save_pretrained(folder)


_BOS = 5


def _bert_tokenizer(folder: Path, *more: str) -> Any:
    from transformers import BertTokenizer

    texts = [*more, *CAPTIONS.values(), *WRITTEN.values(), *ANSWERS.values(), QUESTION, TOTAL, DATE, "?"]
    texts += [answer for answers in PAGES.values() for answer in answers.values()]
    words = sorted({word.strip("?") for text in texts for word in text.split()} - {""})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]", "?", *words]
    tokenizer = BertTokenizer(
        vocab={word: at for at, word in enumerate(vocabulary)}, model_max_length=40, bos_token="[DEC]"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def _blip(tokenizer: Any) -> Any:
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


def _decoder(size: int) -> dict[str, Any]:
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


def _taught_to_write(model: Any, seen: Any, said: Any, wanted: Any = True) -> None:
    """Wanted: which tokens it is to find by itself."""
    tokens = {"decoder_start_token_id": 2, "pad_token_id": 0, "eos_token_id": 3}
    for name, token in tokens.items():
        setattr(model.config, name, token)
        setattr(model.generation_config, name, token)
    taught(
        model, lambda model: _next_token_loss(model(pixel_values=seen, decoder_input_ids=said).logits, said * wanted)
    )


def _next_token_loss(logits: Any, tokens: Any) -> Any:
    import torch

    wanted = tokens[:, 1:].masked_fill(tokens[:, 1:] <= 0, -100)
    return torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), wanted)


def document(colours: "Sequence[str]") -> Any:
    """Pages as a TIFF."""
    import io

    from experts.host.handler import Media

    pages = [plain(colour, (80, 80)) for colour in colours]
    buffer = io.BytesIO()
    pages[0].save(buffer, "TIFF", save_all=True, append_images=pages[1:])
    return Media(buffer.getvalue(), "image/tiff", "letter.tiff")
