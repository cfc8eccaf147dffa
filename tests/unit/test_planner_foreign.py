"""Plans of the embedded planner for requests in other languages than English."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.embedded.foreign import language_detection
from services.planner.embedded.foreign.lexicons import SUPPORTED, Kind, lexicon_of
from services.planner.embedded.wording import read
from services.planner.plan import NoteKind, Text
from services.planner.plan_check import find_faults
from tests.support.plans import STANDARD, embedded_plan, notation, plan_request

Row = tuple[str, tuple[str, ...], list[str]]

GERMAN: list[Row] = [
    ("Übersetze den Text ins Englische.", ("brief.txt",), ["translation(text=file1; target_language=en)"]),
    (
        "Kannst du mir bitte den Text in scan.png vorlesen?",
        ("scan.png",),
        ["image-to-text(image=file1)", "text-to-speech(text=1.text)"],
    ),
    (
        "Fasse den Artikel in drei Sätzen zusammen und übersetze ihn dann ins Französische.",
        ("artikel.txt",),
        ["summarization(text=file1)", "translation(text=1.text; target_language=fr)"],
    ),
    (
        "Transkribiere die Aufnahme und fasse sie zusammen.",
        ("call.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("Was steht auf dem Schild?", ("schild.jpg",), ["image-to-text(image=file1)"]),
    ("Wie viele Personen sind auf dem Foto?", ("team.jpg",), ["object-detection(image=file1)"]),
    (
        "Wie hoch ist der Gesamtbetrag auf der Rechnung?",
        ("rechnung.pdf",),
        ["document-question-answering(image=file1, question='Wie hoch ist der Gesamtbetrag auf der Rechnung?')"],
    ),
    (
        "Wer ist der Vermieter laut Vertrag?",
        ("vertrag.txt",),
        ["question-answering(question='Wer ist der Vermieter laut Vertrag?', context=file1)"],
    ),
    (
        "Ist der Kunde in dieser Aufnahme zufrieden oder verärgert?",
        ("call.wav",),
        ["automatic-speech-recognition(audio=file1)", "text-classification(text=1.text)"],
    ),
    (
        "Übersetze „Guten Morgen, wie geht es dir?“ ins Spanische",
        (),
        ["translation(text='Guten Morgen, wie geht es dir?'; target_language=es)"],
    ),
    (
        "Mache das Bild schwarzweiß und drehe es um 90 Grad.",
        ("a.png",),
        [
            "image-to-image(image=file1, instruction='make the image black and white')",
            "image-to-image(image=1.image, instruction='rotate it by 90 degrees')",
        ],
    ),
    (
        "Finde alle Namen und Daten in diesem Brief.",
        ("brief.png",),
        ["image-to-text(image=file1)", "token-classification(text=1.text)"],
    ),
    ("Zeichne ein Bild von einer Katze am Strand", (), ["text-to-image(text='einer Katze am Strand')"]),
    (
        "Fasse zusammen: Die Firma hat im letzten Jahr viel Geld verdient. Der Umsatz stieg um zehn Prozent.",
        (),
        ["summarization(text='Die Firma hat im letzten Jahr viel Geld verdient. Der Umsatz stieg um zehn Prozent.')"],
    ),
    ("Bitte die Namen und Orte in dem Text finden.", ("t.txt",), ["token-classification(text=file1)"]),
    (
        "Entferne das Rauschen aus interview.wav und transkribiere es anschließend",
        ("interview.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    ("Erzeuge eine Tiefenkarte von dem Foto", ("a.jpg",), ["depth-estimation(image=file1)"]),
    ("zusammenfassen bitte", ("t.txt",), ["summarization(text=file1)"]),
    ("In welcher Sprache ist der Text geschrieben?", ("t.txt",), ["text-classification(text=file1)"]),
    (
        "Ich möchte wissen, was in der Sprachnachricht gesagt wird.",
        ("a.wav",),
        ["automatic-speech-recognition(audio=file1)"],
    ),
    (
        "Übersetze ins Deutsche: The company announced record profits. Shares rose by ten percent.",
        (),
        ["translation(text='The company announced record profits. Shares rose by ten percent.'; target_language=de)"],
    ),
    ("Übersetze guten Morgen ins Englische", (), ["translation(text='guten Morgen'; target_language=en)"]),
    (
        "Übersetze den Text von Deutsch nach Spanisch",
        ("a.txt",),
        ["translation(text=file1; source_language=de, target_language=es)"],
    ),
    ("Wandle den Text in Sprache um", ("a.txt",), ["text-to-speech(text=file1)"]),
    (
        "Vergleiche die beiden Sätze „Ich mag Hunde“ und „Ich liebe Katzen“",
        (),
        ["sentence-similarity(text='Ich mag Hunde', sentences=['Ich liebe Katzen'])"],
    ),
    ("Ist diese Nachricht Spam?", ("a.txt",), ["text-classification(text=file1)"]),
    (
        "Beantworte die Frage „Wann wurde die Firma gegründet?“ anhand des Textes",
        ("a.txt",),
        ["question-answering(question='Wann wurde die Firma gegründet?', context=file1)"],
    ),
    (
        "Wer hat den Brief geschrieben?",
        ("a.txt",),
        ["question-answering(question='Wer hat den Brief geschrieben?', context=file1)"],
    ),
    ("was steht da drauf?", ("schild.jpg",), ["image-to-text(image=file1)"]),
    (
        "Könntest du so nett sein und mir den Brief vorlesen?",
        ("brief.jpg",),
        ["image-to-text(image=file1)", "text-to-speech(text=1.text)"],
    ),
    ("ins englische übersetzen", ("a.txt",), ["translation(text=file1; target_language=en)"]),
    (
        "Ich habe eine Aufnahme angehängt. Bitte schreib auf, was gesagt wird, und übersetze es ins Spanische.",
        ("memo.wav",),
        ["automatic-speech-recognition(audio=file1)", "translation(text=1.text; target_language=es)"],
    ),
    ("Wie viele Hunde siehst du auf hunde.jpg?", ("hunde.jpg",), ["object-detection(image=file1)"]),
    (
        "Mach das Bild heller und speichere es",
        ("a.jpg",),
        ["image-to-image(image=file1, instruction='brighten the image')"],
    ),
    ("Welche Namen und Orte kommen im Text vor?", ("a.txt",), ["token-classification(text=file1)"]),
    ("Ist die Bewertung positiv oder negativ?", ("r.txt",), ["text-classification(text=file1)"]),
    ("Was ist auf dem Bild zu sehen?", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("Lies „Guten Tag“ laut vor", (), ["text-to-speech(text='Guten Tag')"]),
    (
        "Welche Farbe hat das Auto?",
        ("auto.jpg",),
        ["visual-question-answering(image=file1, question='Welche Farbe hat das Auto?')"],
    ),
    (
        "Wandle die Sprachnachricht in Text um und fasse das Ergebnis in 50 Wörtern zusammen",
        ("m.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text; max_length=50)"],
    ),
    ("Vergrößere das Foto", ("a.jpg",), ["image-super-resolution(image=file1)"]),
    ("Mach den Hintergrund unscharf", ("a.jpg",), ["image-to-image(image=file1, instruction='blur the background')"]),
    ("Worum geht es in dem Artikel?", ("a.txt",), ["summarization(text=file1)"]),
    ("Fasse alle Dateien zusammen", ("a.txt", "b.txt"), ["summarization(text=file1)", "summarization(text=file2)"]),
]

FRENCH: list[Row] = [
    ("Traduis ce texte en anglais, s'il te plaît.", ("lettre.txt",), ["translation(text=file1; target_language=en)"]),
    (
        "Peux-tu lire à voix haute le texte de cette image ?",
        ("photo.png",),
        ["image-to-text(image=file1)", "text-to-speech(text=1.text)"],
    ),
    (
        "Résume l'article ci-joint en trois phrases puis traduis le résumé en allemand.",
        ("article.txt",),
        ["summarization(text=file1)", "translation(text=1.text; target_language=de)"],
    ),
    (
        "Transcris cet enregistrement et trouve tous les noms.",
        ("appel.wav",),
        ["automatic-speech-recognition(audio=file1)", "token-classification(text=1.text)"],
    ),
    ("Qu'est-ce qui est écrit sur ce panneau ?", ("panneau.jpg",), ["image-to-text(image=file1)"]),
    ("Combien de personnes y a-t-il sur la photo ?", ("equipe.jpg",), ["object-detection(image=file1)"]),
    (
        "Quel est le montant total de la facture ?",
        ("facture.pdf",),
        ["document-question-answering(image=file1, question='Quel est le montant total de la facture ?')"],
    ),
    ("Supprime l'arrière-plan de l'image.", ("chien.jpg",), ["image-segmentation(image=file1)"]),
    (
        "Traduis « Bonjour tout le monde » en espagnol",
        (),
        ["translation(text='Bonjour tout le monde'; target_language=es)"],
    ),
    ("Quel est le sentiment de cet avis ?", ("avis.txt",), ["text-classification(text=file1)"]),
    (
        "Enlève le bruit de fond de l'enregistrement et transcris-le",
        ("a.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    (
        "Résume le texte suivant :\nThe company announced record profits this year. Shares rose after the news.",
        (),
        ["summarization(text='The company announced record profits this year. Shares rose after the news.')"],
    ),
    (
        "Extraire le texte de l'image, le traduire en anglais et le lire à voix haute",
        ("a.png",),
        [
            "image-to-text(image=file1)",
            "translation(text=1.text; target_language=en)",
            "text-to-speech(text=2.text; language=en)",
        ],
    ),
    (
        "Qui a écrit cette lettre ?",
        ("a.txt",),
        ["question-answering(question='Qui a écrit cette lettre ?', context=file1)"],
    ),
    (
        "Lis-moi le texte de la photo s'il vous plait",
        ("a.jpg",),
        ["image-to-text(image=file1)", "text-to-speech(text=1.text)"],
    ),
    ("traduire en anglais", ("a.txt",), ["translation(text=file1; target_language=en)"]),
    ("que dit cette note vocale ?", ("a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    ("J'ai joint une photo. Dis-moi combien de chiens il y a.", ("chiens.jpg",), ["object-detection(image=file1)"]),
    (
        "Décris l'image puis lis la description à voix haute",
        ("a.jpg",),
        ["image-to-text(image=file1)", "text-to-speech(text=1.text)"],
    ),
    ("Ce commentaire est-il positif ou négatif ?", ("c.txt",), ["text-classification(text=file1)"]),
    (
        "Quelle est la date d'échéance de cette facture ?",
        ("f.pdf",),
        ['document-question-answering(image=file1, question="Quelle est la date d\'échéance de cette facture ?")'],
    ),
    ("De quoi parle cet article ?", ("a.txt",), ["summarization(text=file1)"]),
    ("Dans quelle langue est ce texte ?", ("t.txt",), ["text-classification(text=file1)"]),
    (
        "De quelle couleur est la voiture ?",
        ("v.jpg",),
        ["visual-question-answering(image=file1, question='De quelle couleur est la voiture ?')"],
    ),
]

SPANISH: list[Row] = [
    ("Traduce este texto al inglés, por favor.", ("carta.txt",), ["translation(text=file1; target_language=en)"]),
    (
        "¿Puedes leer en voz alta el texto de esta imagen?",
        ("foto.png",),
        ["image-to-text(image=file1)", "text-to-speech(text=1.text)"],
    ),
    (
        "Resume el artículo en tres frases y luego tradúcelo al alemán.",
        ("articulo.txt",),
        ["summarization(text=file1)", "translation(text=1.text; target_language=de)"],
    ),
    (
        "Transcribe la grabación y resúmela.",
        ("llamada.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("¿Qué está escrito en el cartel?", ("cartel.jpg",), ["image-to-text(image=file1)"]),
    ("¿Cuántas personas hay en la foto?", ("equipo.jpg",), ["object-detection(image=file1)"]),
    (
        "¿Cuál es el importe total de la factura?",
        ("factura.pdf",),
        ["document-question-answering(image=file1, question='¿Cuál es el importe total de la factura?')"],
    ),
    ("Quita el fondo de la imagen.", ("perro.jpg",), ["image-segmentation(image=file1)"]),
    (
        "¿De qué color es el coche?",
        ("coche.jpg",),
        ["visual-question-answering(image=file1, question='¿De qué color es el coche?')"],
    ),
    (
        "¿El cliente está contento o enfadado?",
        ("llamada.wav",),
        ["automatic-speech-recognition(audio=file1)", "text-classification(text=1.text)"],
    ),
    (
        "Extrae el texto de la imagen, tradúcelo al francés y léelo en voz alta.",
        ("a.png",),
        [
            "image-to-text(image=file1)",
            "translation(text=1.text; target_language=fr)",
            "text-to-speech(text=2.text; language=fr)",
        ],
    ),
    (
        "¿Quién escribió esta carta?",
        ("a.txt",),
        ["question-answering(question='¿Quién escribió esta carta?', context=file1)"],
    ),
    ("pasa este audio a texto", ("a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    ("tradúceme esto al inglés porfa", ("a.txt",), ["translation(text=file1; target_language=en)"]),
    ("Hola, ¿me podrías decir qué dice esta nota de voz?", ("a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    ("¿Me puedes decir cuántos perros hay en perros.jpg?", ("perros.jpg",), ["object-detection(image=file1)"]),
    (
        "¿Cuál es la fecha de vencimiento de la factura?",
        ("f.pdf",),
        ["document-question-answering(image=file1, question='¿Cuál es la fecha de vencimiento de la factura?')"],
    ),
    (
        "Describe la foto y tradúcelo al francés",
        ("a.jpg",),
        ["image-to-text(image=file1)", "translation(text=1.text; target_language=fr)"],
    ),
    ("Lee «Buenos días» en voz alta", (), ["text-to-speech(text='Buenos días')"]),
    ("Crea una imagen de un dragón sobre Madrid", (), ["text-to-image(text='un dragón sobre Madrid')"]),
    (
        "Haz que la foto sea más brillante",
        ("a.jpg",),
        ["image-to-image(image=file1, instruction='make the photo brighter')"],
    ),
    (
        "Gira la imagen 90 grados",
        ("a.jpg",),
        ["image-to-image(image=file1, instruction='rotate the image 90 degrees')"],
    ),
    ("¿De qué trata el artículo?", ("a.txt",), ["summarization(text=file1)"]),
    ("Encuentra todos los nombres y fechas en el documento", ("d.txt",), ["token-classification(text=file1)"]),
    ("Resume en 50 palabras", ("a.txt",), ["summarization(text=file1; max_length=50)"]),
    (
        "Resume este texto: La empresa anunció ayer beneficios récord. Las acciones subieron un diez por ciento.",
        (),
        ["summarization(text='La empresa anunció ayer beneficios récord. Las acciones subieron un diez por ciento.')"],
    ),
]

ITALIAN: list[Row] = [
    ("Traduci questo testo in inglese, per favore.", ("a.txt",), ["translation(text=file1; target_language=en)"]),
    (
        "Puoi leggere ad alta voce il testo di questa immagine?",
        ("a.png",),
        ["image-to-text(image=file1)", "text-to-speech(text=1.text)"],
    ),
    (
        "Riassumi l'articolo in tre frasi e poi traducilo in tedesco.",
        ("a.txt",),
        ["summarization(text=file1)", "translation(text=1.text; target_language=de)"],
    ),
    (
        "Trascrivi la registrazione e riassumila.",
        ("a.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("Cosa c'è scritto sul cartello?", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("Quante persone ci sono nella foto?", ("a.jpg",), ["object-detection(image=file1)"]),
    (
        "Qual è l'importo totale della fattura?",
        ("a.pdf",),
        ['document-question-answering(image=file1, question="Qual è l\'importo totale della fattura?")'],
    ),
    ("Rimuovi lo sfondo dell'immagine.", ("a.jpg",), ["image-segmentation(image=file1)"]),
]

PORTUGUESE: list[Row] = [
    ("Traduza este texto para inglês, por favor.", ("a.txt",), ["translation(text=file1; target_language=en)"]),
    (
        "Você pode ler em voz alta o texto desta imagem?",
        ("a.png",),
        ["image-to-text(image=file1)", "text-to-speech(text=1.text)"],
    ),
    (
        "Resuma o artigo em três frases e depois traduza-o para alemão.",
        ("a.txt",),
        ["summarization(text=file1)", "translation(text=1.text; target_language=de)"],
    ),
    ("O que está escrito na placa?", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("Quantas pessoas há na foto?", ("a.jpg",), ["object-detection(image=file1)"]),
    (
        "Qual é o valor total da fatura?",
        ("a.pdf",),
        ["document-question-answering(image=file1, question='Qual é o valor total da fatura?')"],
    ),
    ("Remova o fundo da imagem.", ("a.jpg",), ["image-segmentation(image=file1)"]),
]

CHINESE: list[Row] = [
    ("把这段文字翻译成英文。", ("a.txt",), ["translation(text=file1; target_language=en)"]),
    ("请读出图片中的文字。", ("a.png",), ["image-to-text(image=file1)"]),
    (
        "总结这篇文章，然后翻译成法语。",
        ("a.txt",),
        ["summarization(text=file1)", "translation(text=1.text; target_language=fr)"],
    ),
    (
        "把录音转成文字，然后总结一下。",
        ("a.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("这张照片里有几个人？", ("a.jpg",), ["object-detection(image=file1)"]),
    (
        "这张发票的总金额是多少？",
        ("a.pdf",),
        ["document-question-answering(image=file1, question='这张发票的总金额是多少？')"],
    ),
    ("去掉图片的背景。", ("a.jpg",), ["image-segmentation(image=file1)"]),
    ("画一只在海边的猫", (), ["text-to-image(text='一只在海边的猫')"]),
    ("把“你好，世界”翻译成西班牙语", (), ["translation(text='你好，世界'; target_language=es)"]),
    ("图片上写了什么？", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("这条评论是正面的还是负面的？", ("a.txt",), ["text-classification(text=file1)"]),
    ("朗读这段文字", ("a.txt",), ["text-to-speech(text=file1)"]),
    ("录音里说了什么？", ("a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    (
        "提取图片中的文字，翻译成英文，然后朗读出来",
        ("a.png",),
        [
            "image-to-text(image=file1)",
            "translation(text=1.text; target_language=en)",
            "text-to-speech(text=2.text; language=en)",
        ],
    ),
    (
        "请把附件里的录音转成文字，再翻译成英语",
        ("a.wav",),
        ["automatic-speech-recognition(audio=file1)", "translation(text=1.text; target_language=en)"],
    ),
    ("翻译成英文", ("a.txt",), ["translation(text=file1; target_language=en)"]),
    ("这段录音里的人说了什么？", ("a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    ("帮我看看这张图片上写的是什么", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("这篇文章讲了什么？", ("a.txt",), ["summarization(text=file1)"]),
    ("找出文章中所有的人名和地名", ("a.txt",), ["token-classification(text=file1)"]),
    (
        "发票的到期日是什么时候？",
        ("f.pdf",),
        ["document-question-answering(image=file1, question='发票的到期日是什么时候？')"],
    ),
    ("把文字转成语音", ("a.txt",), ["text-to-speech(text=file1)"]),
    (
        "总结以下内容：公司昨天宣布利润创下纪录。股价上涨了百分之十。",
        (),
        ["summarization(text='公司昨天宣布利润创下纪录。股价上涨了百分之十。')"],
    ),
    (
        "照片里的车是什么颜色？",
        ("a.jpg",),
        ["visual-question-answering(image=file1, question='照片里的车是什么颜色？')"],
    ),
]

JAPANESE: list[Row] = [
    ("この画像の文字を読み上げてください。", ("a.png",), ["image-to-text(image=file1)", "text-to-speech(text=1.text)"]),
    (
        "この記事を要約して、フランス語に翻訳してください。",
        ("a.txt",),
        ["summarization(text=file1)", "translation(text=1.text; target_language=fr)"],
    ),
    (
        "録音を文字起こししてから要約してください。",
        ("a.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("写真には何人いますか？", ("a.jpg",), ["object-detection(image=file1)"]),
    (
        "請求書の合計金額はいくらですか？",
        ("a.pdf",),
        ["document-question-answering(image=file1, question='請求書の合計金額はいくらですか？')"],
    ),
    ("背景を削除してください。", ("a.jpg",), ["image-segmentation(image=file1)"]),
    ("看板に何と書いてありますか？", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("「こんにちは」をスペイン語に翻訳して", (), ["translation(text='こんにちは'; target_language=es)"]),
    ("海辺の猫の絵を描いてください", (), ["text-to-image(text='海辺の猫')"]),
]

KOREAN: list[Row] = [
    ("이 텍스트를 영어로 번역해 주세요.", ("a.txt",), ["translation(text=file1; target_language=en)"]),
    ("이 이미지의 글자를 읽어 주세요.", ("a.png",), ["image-to-text(image=file1)"]),
    (
        "이 기사를 세 문장으로 요약하고 프랑스어로 번역해 줘.",
        ("a.txt",),
        ["summarization(text=file1)", "translation(text=1.text; target_language=fr)"],
    ),
    (
        "녹음 파일을 텍스트로 변환한 다음 요약해 주세요.",
        ("a.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("사진에 몇 명이 있나요?", ("a.jpg",), ["object-detection(image=file1)"]),
    (
        "이 송장의 총액이 얼마인가요?",
        ("a.pdf",),
        ["document-question-answering(image=file1, question='이 송장의 총액이 얼마인가요?')"],
    ),
    ("배경을 제거해 줘.", ("a.jpg",), ["image-segmentation(image=file1)"]),
    ("표지판에 뭐라고 적혀 있나요?", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("“안녕하세요”를 스페인어로 번역해줘", (), ["translation(text='안녕하세요'; target_language=es)"]),
    (
        "이미지에서 텍스트를 추출하고 영어로 번역한 다음 소리 내어 읽어 주세요",
        ("a.png",),
        [
            "image-to-text(image=file1)",
            "translation(text=1.text; target_language=en)",
            "text-to-speech(text=2.text; language=en)",
        ],
    ),
    ("사진에 고양이가 몇 마리 있어?", ("a.jpg",), ["object-detection(image=file1)"]),
    ("이 기사 요약해줘", ("a.txt",), ["summarization(text=file1)"]),
    ("영어로 번역", ("a.txt",), ["translation(text=file1; target_language=en)"]),
    ("이 녹음에서 뭐라고 말하나요?", ("a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    (
        "첨부한 편지를 영어로 번역해서 소리 내어 읽어 줘",
        ("a.txt",),
        ["translation(text=file1; target_language=en)", "text-to-speech(text=1.text; language=en)"],
    ),
    ("사진을 90도 회전해 줘", ("a.jpg",), ["image-to-image(image=file1, instruction='rotate photo 90 degrees')"]),
    (
        "이 영수증의 총 금액은 얼마예요?",
        ("r.jpg",),
        ["document-question-answering(image=file1, question='이 영수증의 총 금액은 얼마예요?')"],
    ),
    (
        "다음 글을 요약해 주세요: 회사는 어제 기록적인 이익을 발표했다. 주가는 10퍼센트 올랐다.",
        (),
        ["summarization(text='회사는 어제 기록적인 이익을 발표했다. 주가는 10퍼센트 올랐다.')"],
    ),
]

FURTHER: list[Row] = [
    (
        "Guten Tag, könnten Sie mir bitte den Inhalt von bericht.txt zusammenfassen?",
        ("bericht.txt",),
        ["summarization(text=file1)"],
    ),
    ("ich brauch ne zusammenfassung von dem text", ("a.txt",), ["summarization(text=file1)"]),
    ("sprachnachricht abtippen", ("a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    (
        "Gib mir bitte eine Übersetzung des Textes ins Italienische",
        ("a.txt",),
        ["translation(text=file1; target_language=it)"],
    ),
    ("Erkenne die Objekte auf bild.png", ("bild.png",), ["object-detection(image=file1)"]),
    ("Was sagt die Frau in der Aufnahme?", ("a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    ("Wie ist die Stimmung in diesem Kommentar?", ("a.txt",), ["text-classification(text=file1)"]),
    ("Wandle diesen Text in eine Audiodatei um.", ("a.txt",), ["text-to-speech(text=file1)"]),
    (
        "Finde heraus, in welcher Sprache der Text geschrieben ist, und übersetze ihn ins Deutsche.",
        ("a.txt",),
        ["text-classification(text=file1)", "translation(text=file1; target_language=de)"],
    ),
    (
        "Bonjour, pourriez-vous s'il vous plaît résumer le rapport en deux phrases ? Merci d'avance !",
        ("rapport.txt",),
        ["summarization(text=file1)"],
    ),
    ("j'ai besoin d'un résumé de ce document", ("a.txt",), ["summarization(text=file1)"]),
    ("transcription du fichier audio stp", ("a.mp3",), ["automatic-speech-recognition(audio=file1)"]),
    ("Trouve les objets dans cette image", ("a.png",), ["object-detection(image=file1)"]),
    ("Qu'est-ce qu'il y a sur cette photo ?", ("a.jpg",), ["image-to-text(image=file1)"]),
    (
        "Traduisez « Good morning » en français et lisez-le à voix haute",
        (),
        ["translation(text='Good morning'; target_language=fr)", "text-to-speech(text=1.text; language=fr)"],
    ),
    (
        "Peux-tu extraire le texte de scan.png et le résumer ?",
        ("scan.png",),
        ["image-to-text(image=file1)", "summarization(text=1.text)"],
    ),
    ("Détecte les visages sur la photo", ("a.jpg",), ["object-detection(image=file1)"]),
    ("Génère une image d'un chat qui joue du piano", (), ["text-to-image(text='un chat qui joue du piano')"]),
    ("Combien de voitures sont visibles ?", ("a.jpg",), ["object-detection(image=file1)"]),
    (
        "Buenos días, ¿podría hacerme un resumen del informe en dos frases? Muchas gracias.",
        ("informe.txt",),
        ["summarization(text=file1)"],
    ),
    ("necesito la transcripción de este audio", ("a.mp3",), ["automatic-speech-recognition(audio=file1)"]),
    ("Detecta los objetos en la imagen", ("a.png",), ["object-detection(image=file1)"]),
    ("Genera una imagen de un gato tocando el piano", (), ["text-to-image(text='un gato tocando el piano')"]),
    (
        'Traduce "Good morning" al español y léelo en voz alta',
        (),
        ["translation(text='Good morning'; target_language=es)", "text-to-speech(text=1.text; language=es)"],
    ),
    (
        "Extrae el texto de scan.png y resúmelo",
        ("scan.png",),
        ["image-to-text(image=file1)", "summarization(text=1.text)"],
    ),
    ("¿Qué objetos hay en la foto?", ("a.jpg",), ["object-detection(image=file1)"]),
    ("¿Cuál es el sentimiento de este comentario?", ("a.txt",), ["text-classification(text=file1)"]),
    ("您好，麻烦您帮我把这份报告总结成两句话，谢谢！", ("report.txt",), ["summarization(text=file1)"]),
    ("我需要这段音频的文字稿", ("a.mp3",), ["automatic-speech-recognition(audio=file1)"]),
    ("检测图片中的物体", ("a.png",), ["object-detection(image=file1)"]),
    (
        "把“Good morning”翻译成中文并朗读",
        (),
        ["translation(text='Good morning'; target_language=zh)", "text-to-speech(text=1.text; language=zh)"],
    ),
    ("提取scan.png里的文字并总结", ("scan.png",), ["image-to-text(image=file1)", "summarization(text=1.text)"]),
    ("分析这条评论的情感", ("a.txt",), ["text-classification(text=file1)"]),
    ("图中有多少辆车？", ("a.jpg",), ["object-detection(image=file1)"]),
    ("将report.txt翻译成日语", ("report.txt",), ["translation(text=file1; target_language=ja)"]),
    (
        "안녕하세요, 이 보고서를 두 문장으로 요약해 주시겠어요? 감사합니다.",
        ("report.txt",),
        ["summarization(text=file1)"],
    ),
    ("이 오디오의 녹취록이 필요해요", ("a.mp3",), ["automatic-speech-recognition(audio=file1)"]),
    ("이미지에서 물체를 감지해 주세요", ("a.png",), ["object-detection(image=file1)"]),
    (
        "scan.png에서 텍스트를 추출해서 요약해 줘",
        ("scan.png",),
        ["image-to-text(image=file1)", "summarization(text=1.text)"],
    ),
    ("이 댓글의 감정을 분석해 줘", ("a.txt",), ["text-classification(text=file1)"]),
    ("사진 속 자동차는 몇 대인가요?", ("a.jpg",), ["object-detection(image=file1)"]),
    ("report.txt를 일본어로 번역해 주세요", ("report.txt",), ["translation(text=file1; target_language=ja)"]),
    ("이 동영상을 설명해 줘", ("a.mp4",), ["video-to-text(video=file1)"]),
    (
        "Bitte übersetze den angehängten Brief ins Englische.",
        ("brief.txt",),
        ["translation(text=file1; target_language=en)"],
    ),
    ("Fasse mir bitte das Protokoll zusammen", ("protokoll.txt",), ["summarization(text=file1)"]),
    ("Wie viele Autos sind auf parkplatz.jpg zu sehen?", ("parkplatz.jpg",), ["object-detection(image=file1)"]),
    (
        "Entferne das Hintergrundrauschen aus memo.wav und schreib mir auf, was gesagt wird.",
        ("memo.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    (
        "Wer hat diesen Vertrag unterschrieben?",
        ("vertrag.pdf",),
        ["document-question-answering(image=file1, question='Wer hat diesen Vertrag unterschrieben?')"],
    ),
    (
        "Wann ist die Rechnung fällig?",
        ("rechnung.pdf",),
        ["document-question-answering(image=file1, question='Wann ist die Rechnung fällig?')"],
    ),
    ("Welche Firmen werden in dem Artikel erwähnt?", ("artikel.txt",), ["token-classification(text=file1)"]),
    ("Ist diese Kundenbewertung positiv?", ("b.txt",), ["text-classification(text=file1)"]),
    (
        "Hör dir die Aufnahme an und sag mir, worum es geht.",
        ("a.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("Stell das Produkt auf dem Foto frei", ("p.jpg",), ["image-segmentation(image=file1)"]),
    (
        "Übersetze die Sprachnachricht ins Deutsche",
        ("a.wav",),
        ["automatic-speech-recognition(audio=file1)", "translation(text=1.text; target_language=de)"],
    ),
    (
        "Peux-tu me lire ce document à voix haute ?",
        ("doc.pdf",),
        ["image-to-text(image=file1)", "text-to-speech(text=1.text)"],
    ),
    (
        "Transcris reunion.mp3 et fais-en un résumé",
        ("reunion.mp3",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("Combien de voitures y a-t-il sur parking.jpg ?", ("parking.jpg",), ["object-detection(image=file1)"]),
    (
        "Traduis menu.pdf en anglais",
        ("menu.pdf",),
        ["image-to-text(image=file1)", "translation(text=1.text; target_language=en)"],
    ),
    ("Quelles entreprises sont mentionnées dans l'article ?", ("a.txt",), ["token-classification(text=file1)"]),
    (
        "Supprime le bruit de fond de memo.wav, puis transcris-le et traduis-le en anglais.",
        ("memo.wav",),
        [
            "audio-to-audio(audio=file1)",
            "automatic-speech-recognition(audio=1.audio)",
            "translation(text=2.text; target_language=en)",
        ],
    ),
    (
        "Transcribe reunion.mp3 y haz un resumen",
        ("reunion.mp3",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("¿Cuántos coches hay en parking.jpg?", ("parking.jpg",), ["object-detection(image=file1)"]),
    (
        "Traduce menu.pdf al inglés y léemelo",
        ("menu.pdf",),
        [
            "image-to-text(image=file1)",
            "translation(text=1.text; target_language=en)",
            "text-to-speech(text=2.text; language=en)",
        ],
    ),
    ("¿Qué empresas se mencionan en el artículo?", ("a.txt",), ["token-classification(text=file1)"]),
    (
        "¿Quién firmó este contrato?",
        ("c.pdf",),
        ["document-question-answering(image=file1, question='¿Quién firmó este contrato?')"],
    ),
    ("¿Esta reseña es positiva o negativa?", ("r.txt",), ["text-classification(text=file1)"]),
    (
        "Elimina el ruido de fondo de memo.wav y transcríbelo",
        ("memo.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    ("Describe qué se ve en la foto", ("a.jpg",), ["image-to-text(image=file1)"]),
    (
        "¿De qué habla esta grabación?",
        ("a.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    (
        "请把会议录音转成文字并做个总结",
        ("m.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("停车场照片里有多少辆车？", ("p.jpg",), ["object-detection(image=file1)"]),
    (
        "把menu.pdf翻译成英文",
        ("menu.pdf",),
        ["image-to-text(image=file1)", "translation(text=1.text; target_language=en)"],
    ),
    (
        "去除memo.wav中的背景噪音，然后转成文字",
        ("memo.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    ("描述一下这张照片", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("把照片里的人抠出来", ("p.jpg",), ["image-segmentation(image=file1)"]),
    ("用中文朗读这封信", ("l.txt",), ["text-to-speech(text=file1; language=zh)"]),
    (
        "회의 녹음을 텍스트로 변환하고 요약해 주세요",
        ("m.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("주차장 사진에 자동차가 몇 대 있나요?", ("p.jpg",), ["object-detection(image=file1)"]),
    (
        "menu.pdf를 영어로 번역해 주세요",
        ("menu.pdf",),
        ["image-to-text(image=file1)", "translation(text=1.text; target_language=en)"],
    ),
    ("이 리뷰가 긍정적인지 부정적인지 알려 주세요", ("r.txt",), ["text-classification(text=file1)"]),
    (
        "memo.wav의 배경 소음을 제거하고 텍스트로 변환해 주세요",
        ("memo.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    ("이 사진을 설명해 주세요", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("이 편지를 소리 내어 읽어 주세요", ("l.txt",), ["text-to-speech(text=file1)"]),
    (
        "송장의 만기일은 언제인가요?",
        ("f.pdf",),
        ["document-question-answering(image=file1, question='송장의 만기일은 언제인가요?')"],
    ),
    (
        "会議の録音を文字に起こして要約してください",
        ("m.wav",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("写真に車が何台写っていますか？", ("p.jpg",), ["object-detection(image=file1)"]),
    (
        "menu.pdfを英語に翻訳してください",
        ("menu.pdf",),
        ["image-to-text(image=file1)", "translation(text=1.text; target_language=en)"],
    ),
    ("この写真を説明してください", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("この手紙を音読してください", ("l.txt",), ["text-to-speech(text=file1)"]),
    ("このレビューは肯定的ですか、否定的ですか？", ("r.txt",), ["text-classification(text=file1)"]),
    (
        "Trascrivi riunione.mp3 e fai un riassunto",
        ("riunione.mp3",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("Quante auto ci sono in parcheggio.jpg?", ("parcheggio.jpg",), ["object-detection(image=file1)"]),
    (
        "Traduci menu.pdf in inglese e leggilo ad alta voce",
        ("menu.pdf",),
        [
            "image-to-text(image=file1)",
            "translation(text=1.text; target_language=en)",
            "text-to-speech(text=2.text; language=en)",
        ],
    ),
    ("Questa recensione è positiva o negativa?", ("r.txt",), ["text-classification(text=file1)"]),
    ("Descrivi questa foto", ("a.jpg",), ["image-to-text(image=file1)"]),
    (
        "Transcreva reuniao.mp3 e faça um resumo",
        ("reuniao.mp3",),
        ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"],
    ),
    ("Quantos carros há em estacionamento.jpg?", ("estacionamento.jpg",), ["object-detection(image=file1)"]),
    ("Descreva esta foto", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("Esta avaliação é positiva ou negativa?", ("r.txt",), ["text-classification(text=file1)"]),
]

NEGATED: list[Row] = [
    ("Übersetze den Text nicht, sondern fasse ihn zusammen", ("a.txt",), ["summarization(text=file1)"]),
    ("Fasse den Text zusammen, ohne ihn zu übersetzen", ("a.txt",), ["summarization(text=file1)"]),
    ("Ne traduis pas le texte, résume-le", ("a.txt",), ["summarization(text=file1)"]),
    ("No traduzcas el texto, solo resúmelo", ("a.txt",), ["summarization(text=file1)"]),
    ("Non tradurre il testo, riassumilo", ("a.txt",), ["summarization(text=file1)"]),
    ("Não traduza o texto, resuma-o", ("a.txt",), ["summarization(text=file1)"]),
    ("不要翻译，只总结这段文字", ("a.txt",), ["summarization(text=file1)"]),
    ("翻訳しないで要約してください", ("a.txt",), ["summarization(text=file1)"]),
    ("번역하지 말고 요약해 줘", ("a.txt",), ["summarization(text=file1)"]),
    ("Übersetze alles außer a.txt ins Englische", ("a.txt", "b.txt"), ["translation(text=file2; target_language=en)"]),
]

NOT_UNDERSTOOD: list[tuple[str, str, str]] = [
    ("Vertausche die Gesichter auf dem Foto", "“Vertausche”", "auf Englisch"),
    ("Backe mir einen Kuchen", "“Backe”, “Kuchen”", "auf Englisch"),
    ("Montre-moi la météo de demain", "“météo”, “demain”", "en anglais"),
    ("Envía este texto a mi jefe por correo", "“jefe”", "en inglés"),
    ("把图片压缩到1MB", "“压缩”", "请用英语说"),
    ("피자 한 판 주문해 줘", "“피자”, “판”", "영어로"),
    ("Переведи этот текст на английский.", "of Russian", "по-английски"),
    ("Переклади цей текст англійською, будь ласка, її", "of Ukrainian", "англійською"),
    ("ترجم هذا النص إلى الإنجليزية", "of Arabic", "بالإنجليزية"),
    ("इस पाठ का अंग्रेज़ी में अनुवाद करो", "of Hindi", "अंग्रेज़ी"),
    ("Vertaal deze tekst naar het Engels, alsjeblieft.", "of Dutch", "in het Engels"),
    ("Kun je deze tekst voorlezen?", "of Dutch", "in het Engels"),
    ("Przetłumacz ten tekst na angielski", "of Polish", "po angielsku"),
    ("Översätt den här texten till engelska", "of Swedish", "på engelska"),
    ("Bu metni İngilizceye çevir", "of Turkish", "İngilizce"),
    ("Tolong terjemahkan teks ini ke bahasa Inggris", "of Indonesian", "bahasa Inggris"),
    ("Dịch văn bản này sang tiếng Anh", "of Vietnamese", "tiếng Anh"),
    ("แปลข้อความนี้เป็นภาษาอังกฤษ", "of Thai", "ภาษาอังกฤษ"),
    ("Μετάφρασε αυτό το κείμενο στα αγγλικά", "of Greek", "στα αγγλικά"),
    ("תרגם את הטקסט הזה לאנגלית", "of Hebrew", "באנגלית"),
    ("Përkthe këtë tekst në anglisht", "These words were not understood", "Say it in English"),
]

ENGLISH = (
    'Translate "Guten Morgen, wie geht es dir?" to English',
    "Translate this to English: Guten Tag, ich möchte einen Tisch für zwei Personen reservieren.",
    "Summarize the following text:\nDie Firma hat ein neues Produkt vorgestellt. Es ist teuer und sehr klein.",
    "Die Firma hat heute ein neues Produkt vorgestellt und es ist sehr teuer.\nTranslate this to English.",
    'What does "Wie geht es Ihnen" mean?',
    "Bitte transcribe the attached audio",
    "translate 你好 to English",
    "ocr",
    "sumarize tower.txt pls thx",
    "draw a café in Montréal for me",
    "greyscale",
    "Read sign.jpg aloud",
)


EVERYDAY: list[Row] = [
    ("Kannst du die Tafel abschreiben?", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("Mach aus der Aufnahme eine MP3-Datei", ("a.wav",), ["audio-conversion(audio=file1; format=mp3)"]),
    (
        "Dreh das Poster um 180 Grad",
        ("a.png",),
        ["image-to-image(image=file1, instruction='rotate the poster by 180 degrees')"],
    ),
    (
        "Mach das Bild etwas dunkler",
        ("a.png",),
        ["image-to-image(image=file1, instruction='darken the image a bit')"],
    ),
    ("Ist da jemand zu sehen?", ("a.jpg",), ["object-detection(image=file1)"]),
    ("Wie viele Seiten hat das Handbuch?", ("a.pdf",), ["page-count(image=file1)"]),
    ("Hat es ihr gefallen?", ("a.txt",), ["text-classification(text=file1)"]),
    ("¿Qué pone en la pared?", ("a.jpg",), ["image-to-text(image=file1)"]),
    ("Pásalo a ogg", ("a.wav",), ["audio-conversion(audio=file1; format=ogg)"]),
    (
        "Reduce la foto a 300 píxeles de ancho",
        ("a.png",),
        ["image-to-image(image=file1, instruction='reduce the photo to 300 pixels wide')"],
    ),
    ("¿Cuántos somos en la foto?", ("a.jpg",), ["object-detection(image=file1)"]),
    ("¿Es una queja?", ("a.txt",), ["text-classification(text=file1)"]),
    ("Quiero escucharlo", ("a.txt",), ["text-to-speech(text=file1)"]),
    ("Je le veux en PDF", ("a.png",), ["image-conversion(image=file1; format=pdf)"]),
    ("Il me faut des badges : combien sont-ils sur la photo ?", ("a.jpg",), ["object-detection(image=file1)"]),
    ("Assombris un peu la photo", ("a.png",), ["image-to-image(image=file1, instruction='darken a bit the photo')"]),
    ("Écris ce qu'elle dit", ("a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    ("이 녹음을 flac로 변환해 주세요", ("a.wav",), ["audio-conversion(audio=file1; format=flac)"]),
    ("이 글을 음성 파일로 만들어 주시겠어요?", ("a.txt",), ["text-to-speech(text=file1)"]),
    (
        "사진을 좌우로 뒤집어 주세요",
        ("a.png",),
        ["image-to-image(image=file1, instruction='mirror photo horizontally')"],
    ),
    ("保存为JPG格式", ("a.png",), ["image-conversion(image=file1; format=jpeg)"]),
    ("把图片缩小一半", ("a.png",), ["image-to-image(image=file1, instruction='resize image by half')"]),
    ("一共有多少个字？", ("a.txt",), ["text-statistics(text=file1)"]),
]


@pytest.mark.parametrize(("text", "files", "expected"), EVERYDAY)
def test_everyday_request_is_planned_with_lite_tasks(text: str, files: tuple[str, ...], expected: list[str]) -> None:
    draft = embedded_plan(plan_request(text, files))
    assert notation(draft.tasks) == expected
    assert draft.notes == ()


def test_command_with_an_unknown_verb_is_not_taken_for_a_statement() -> None:
    draft = embedded_plan(plan_request("Tarabistouille la photo. Combien de personnes sur la photo ?", ("a.jpg",)))
    assert "object-detection" not in [task.task for task in draft.tasks]


@pytest.mark.parametrize(
    ("text", "files", "tasks"),
    [*GERMAN, *FRENCH, *SPANISH, *ITALIAN, *PORTUGUESE, *CHINESE, *JAPANESE, *KOREAN, *FURTHER, *NEGATED],
)
def test_request_in_another_language_is_planned(text: str, files: tuple[str, ...], tasks: list[str]) -> None:
    assert notation(embedded_plan(plan_request(text, files), STANDARD).tasks) == tasks


@pytest.mark.parametrize(
    ("text", "files", "tasks"),
    [
        (
            "Fasse den Text zusammen. Then translate it to English.",
            ("a.txt",),
            ["summarization(text=file1)", "translation(text=1.text; target_language=en)"],
        ),
        (
            "Read the text in scan.png. Und übersetze ihn dann ins Deutsche.",
            ("scan.png",),
            ["image-to-text(image=file1)", "translation(text=1.text; target_language=de)"],
        ),
    ],
)
def test_sentences_in_two_languages_are_one_plan(text: str, files: tuple[str, ...], tasks: list[str]) -> None:
    assert notation(embedded_plan(plan_request(text, files), STANDARD).tasks) == tasks


@pytest.mark.parametrize(("text", "quoted", "message"), NOT_UNDERSTOOD)
def test_request_in_unsupported_language_yields_clarify_note_in_both_languages(
    text: str, quoted: str, message: str
) -> None:
    draft = embedded_plan(plan_request(text, ("a.txt", "a.jpg")), STANDARD)
    assert draft.tasks == ()
    assert draft.decision.confidence == 0.0
    (note,) = draft.notes
    assert note.kind is NoteKind.CLARIFY
    assert quoted in note.text
    assert message in note.text
    assert note.text.endswith("Say it in English, or set up an LLM with LLM_BASE_URL.")


@pytest.mark.parametrize(
    ("text", "skipped"),
    [("Lies den zweiten Absatz des Textes vor", "zweiten"), ("Lies die spannende Geschichte vor", "spannende")],
)
def test_unknown_word_lowers_confidence_and_yields_note(text: str, skipped: str) -> None:
    draft = embedded_plan(plan_request(text, ("a.txt",)), STANDARD)
    assert notation(draft.tasks) == ["text-to-speech(text=file1)"]
    assert draft.decision.confidence < 0.5
    assert [note.span for note in draft.notes] == [skipped]


@pytest.mark.parametrize("text", ENGLISH)
def test_english_with_foreign_quotations_is_detected_as_english(text: str) -> None:
    is_english = language_detection.detect(read(text, ())) == language_detection.ENGLISH
    assert language_detection.plainly_english(text) or is_english


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("Hallo", NoteKind.CHAT, ""),
        ("Merci beaucoup !", NoteKind.CHAT, ""),
        ("谢谢", NoteKind.CHAT, ""),
        ("고마워요", NoteKind.CHAT, ""),
        ("Wer bist du?", NoteKind.CHAT, ""),
        ("Übersetze ins Englische", NoteKind.CLARIFY, "“Übersetze ins Englische” needs a text"),
        ("Transkribiere die Aufnahme", NoteKind.CLARIFY, "“Transkribiere die Aufnahme” needs a recording"),
        ("Wenn der Text auf Englisch ist, übersetze ihn ins Deutsche", NoteKind.UNMAPPED, "depends on a condition"),
        ("Entferne alle Namen aus dem Text", NoteKind.UNMAPPED, "“Entferne alle Namen aus dem Text” matches no kind"),
    ],
)
def test_unplannable_request_yields_note_in_its_language(text: str, kind: NoteKind, message: str) -> None:
    draft = embedded_plan(plan_request(text), STANDARD)
    assert draft.tasks == ()
    assert draft.notes[0].kind == kind
    assert message in draft.notes[0].text


def test_task_has_its_source_text() -> None:
    text = "Kannst du die Aufnahme bitte transkribieren und den Text danach ins Französische übersetzen?"
    draft = embedded_plan(plan_request(text, ("memo.wav",)), STANDARD)
    assert [task.source for task in draft.tasks] == [
        "Kannst du die Aufnahme bitte transkribieren",
        "den Text danach ins Französische übersetzen?",
    ]
    assert json.loads(draft.tasks[1].parameters_json) == {"target_language": "fr"}


def test_quotation_marks_of_other_scripts_stay_in_the_source_text() -> None:
    (task,) = embedded_plan(plan_request("「こんにちは」をスペイン語に翻訳して"), STANDARD).tasks
    assert task.source == "「こんにちは」をスペイン語に翻訳して"
    assert task.arguments["text"] == Text("こんにちは")


def test_long_pasted_text_is_passed_complete_and_the_next_step_is_planned() -> None:
    pasted = "Die Firma hat viel Geld verdient. " * 1000
    text = f"Fasse den folgenden Text zusammen: {pasted}Danach übersetze ihn ins Englische."
    first, second = embedded_plan(plan_request(text), STANDARD).tasks
    assert first.task == "summarization"
    assert first.arguments == {"text": Text(pasted.strip())}
    assert second.task == "translation"
    assert second.parameters_json == '{"target_language":"en"}'


VOCABULARY = (
    "übersetze",
    "lies",
    "fasse",
    "zusammen",
    "vor",
    "und",
    "dann",
    "nicht",
    "den",
    "Text",
    "auf",
    "ins",
    "Englische",
    "traduis",
    "résume",
    "l'image",
    "d'",
    "puis",
    "ne",
    "pas",
    "翻译",
    "把",
    "图片",
    "的",
    "然后",
    "不要",
    "번역",
    "하고",
    "이",
    "의",
    "를",
    "말고",
    "翻訳",
    "して",
    "の",
    "を",
    "a.png",
    "„gut“",
    "「良い」",
    "“",
    "」",
    ",",
    ".",
    "?",
    ":",
    "¿",
    "12",
    "İ",
    "was",
    "is",
    "Then",
    "read",
    "it",
    "\n",
    " ",
)


@given(st.lists(st.sampled_from(VOCABULARY), max_size=25), st.sampled_from(["", " "]))
def test_random_words_yield_a_valid_plan_with_source_text_of_the_request(text: list[str], separator: str) -> None:
    request = plan_request(separator.join(text), ("a.png",))
    draft = embedded_plan(request, STANDARD)
    given_inputs = {quoted.name: quoted.value for quoted in request.inputs}
    assert not (draft.tasks and find_faults(draft.tasks, STANDARD, given_inputs))
    assert all(task.source.casefold() in request.text.casefold() for task in draft.tasks)


@pytest.mark.parametrize("tag", SUPPORTED)
def test_every_lexicon_has_the_names_of_target_languages(tag: str) -> None:
    data = lexicon_of(tag)
    names = {"de": "Englisch", "fr": "anglais", "es": "inglés", "it": "inglese", "pt": "inglês"}
    name = names.get(tag, {"zh": "英语", "ja": "英語", "ko": "영어"}.get(tag, "")).lower()
    (token,) = data.tokens(name, 0, len(name))
    assert token.kind == Kind.NOUN
    assert token.gloss == "english"
