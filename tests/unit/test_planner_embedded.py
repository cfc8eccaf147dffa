"""Plans of the embedded planner for English requests."""

import random

import pytest

from services.planner.plan import SPLIT_LIMIT, NoteKind, Text
from services.planner.plan_check import find_faults
from services.planner.request import Named, Request, Turn
from services.planner.task_spec import Catalogue, Modality, Parameter, Port, Spec
from tests.support.plans import LITE, STANDARD, embedded_plan, file, notation, plan_request

Row = tuple[str, tuple[str, ...], list[str]]

LITE_CASES: list[Row] = [
    ("How many words are in this article?", ("article.txt",), ["text-statistics(text=file1)"]),
    (
        "count the words of the attached letter",
        ("letter.pdf",),
        ["image-to-text(image=file1)", "text-statistics(text=1.text)"],
    ),
    ("how many pages does it have", ("manual.pdf",), ["page-count(image=file1)"]),
    ("convert this recording to ogg", ("memo.wav",), ["audio-conversion(audio=file1; format=ogg)"]),
    ("make a pdf out of this picture", ("flag.png",), ["image-conversion(image=file1; format=pdf)"]),
    ("make an ogg file from it", ("memo.wav",), ["audio-conversion(audio=file1; format=ogg)"]),
    ("save this as a jpg", ("flag.png",), ["image-conversion(image=file1; format=jpeg)"]),
    (
        "read the review aloud and save it as an mp3",
        ("review.txt",),
        ["text-to-speech(text=file1)", "audio-conversion(audio=1.audio; format=mp3)"],
    ),
    (
        "turn this article into an mp3",
        ("article.txt",),
        ["text-to-speech(text=file1)", "audio-conversion(audio=1.audio; format=mp3)"],
    ),
    ("write down what he says here", ("letter.png",), ["image-to-text(image=file1)"]),
    (
        "Which of these two is the more expensive one?",
        ("plumber.pdf", "electrician.pdf"),
        [
            "image-to-text(image=file1)",
            "image-to-text(image=file2)",
            "calculation(question='Which of these two is the more expensive one?', text=[1.text, 2.text])",
        ],
    ),
    (
        "which garage charges less for labour",
        ("garage_invoice.pdf", "quickfix.pdf"),
        [
            "image-to-text(image=file1)",
            "image-to-text(image=file2)",
            "calculation(question='which garage charges less for labour', text=[1.text, 2.text])",
        ],
    ),
    ("list all people in the minutes", ("minutes.txt",), ["token-classification(text=file1)"]),
    (
        "which is the longer one, and by how many words?",
        ("a.txt", "b.txt"),
        ["calculation(question='which is the longer one, and by how many words?', text=[file1, file2])"],
    ),
    (
        "How many days are there between 3 May 2024 and 12 June 2024?",
        (),
        ["calculation(question='How many days are there between 3 May 2024 and 12 June 2024?')"],
    ),
    (
        "how many nights are there between check-in and check-out?",
        ("hotel.pdf",),
        [
            "image-to-text(image=file1)",
            "calculation(question='how many nights are there between check-in and check-out?', text=[1.text])",
        ],
    ),
    (
        "by how much does the rent rise?",
        ("letter.txt",),
        ["calculation(question='by how much does the rent rise?', text=[file1])"],
    ),
    (
        "which landlord wants the lower deposit",
        ("a.txt", "b.txt"),
        ["calculation(question='which landlord wants the lower deposit', text=[file1, file2])"],
    ),
    (
        "keep only the top third of this picture",
        ("flag.png",),
        ["image-to-image(image=file1, instruction='keep only the top third of this picture')"],
    ),
    (
        "which is the cheapest dish on this menu?",
        ("menu.png",),
        ["document-question-answering(image=file1, question='Which is the cheapest dish on this menu?')"],
    ),
    ("There's a sheet on the gate, what does it tell us?", ("gate.png",), ["image-to-text(image=file1)"]),
    ("read the recipt", ("till.jpg",), ["image-to-text(image=file1)"]),
    ("transcribe it", ("page.jpg",), ["image-to-text(image=file1)"]),
    (
        "clean this recording and send it back as ogg",
        ("memo.wav",),
        ["audio-to-audio(audio=file1)", "audio-conversion(audio=1.audio; format=ogg)"],
    ),
    ("this needs to be a png for the shop", ("logo.jpg",), ["image-conversion(image=file1; format=png)"]),
    ("silence the fan noise", ("memo.wav",), ["audio-to-audio(audio=file1)"]),
    (
        "does she like coffee",
        ("story.txt",),
        ["question-answering(question='Does she like coffee', context=file1)"],
    ),
    (
        "what do they like about the hotel",
        ("review.txt",),
        ["question-answering(question='What do they like about the hotel', context=file1)"],
    ),
    (
        "how many slices of cake does it serve",
        ("recipe.jpg",),
        ["document-question-answering(image=file1, question='How many slices of cake does it serve')"],
    ),
    ("Please type up grandpa's letter", ("grandpa.jpg",), ["image-to-text(image=file1)"]),
    ("Could you transcribe our flipchart?", ("day2.jpg",), ["image-to-text(image=file1)"]),
    ("what does the sign on the gate say?", ("gate.jpg",), ["image-to-text(image=file1)"]),
    ("write out the voicemail", ("vm.wav",), ["automatic-speech-recognition(audio=file1)"]),
    ("how many of us got into this picture?", ("us.jpg",), ["object-detection(image=file1)"]),
    ("anybody in the photo?", ("x.jpg",), ["object-detection(image=file1)"]),
    (
        "look for the wifi password",
        ("sign.jpg",),
        ["document-question-answering(image=file1, question='Look for the wifi password')"],
    ),
    ("just the chair, with the background removed", ("chair.jpg",), ["image-segmentation(image=file1)"]),
    ("did the guests like it?", ("review.txt",), ["text-classification(text=file1)"]),
    ("Was the tenant pleased or fed up?", ("mail.txt",), ["text-classification(text=file1)"]),
    (
        "which of these is a complaint?",
        ("a.txt", "b.txt"),
        ["text-classification(text=file1)", "text-classification(text=file2)"],
    ),
    ("flac please", ("song.wav",), ["audio-conversion(audio=file1; format=flac)"]),
    ("The portal accepts only JPG", ("logo.png",), ["image-conversion(image=file1; format=jpeg)"]),
    (
        "take the humming out and give it back as an mp3",
        ("memo.wav",),
        ["audio-to-audio(audio=file1)", "audio-conversion(audio=1.audio; format=mp3)"],
    ),
    ("get rid off the buzzing", ("memo.wav",), ["audio-to-audio(audio=file1)"]),
    ("remove the hiss and make the voice clearer", ("memo.wav",), ["audio-to-audio(audio=file1)"]),
    ("record this for us", ("gate.txt",), ["text-to-speech(text=file1)"]),
    (
        "I need it 400 pixels wide",
        ("logo.png",),
        ["image-to-image(image=file1, instruction='I need it 400 pixels wide')"],
    ),
    (
        "turn it a quarter to the right",
        ("b.png",),
        ["image-to-image(image=file1, instruction='turn it a quarter to the right')"],
    ),
    ("Could you please read what's on sign.png to me?", ("sign.png",), ["image-to-text(image=file1)"]),
    ("What does this sign say?", ("sign.png",), ["image-to-text(image=file1)"]),
    ("ocr", ("scan.png",), ["image-to-text(image=file1)"]),
    ("transcribe", ("memo.wav",), ["automatic-speech-recognition(audio=file1)"]),
    (
        "Summarise contract.pdf in 50 words",
        ("contract.pdf",),
        ["image-to-text(image=file1)", "summarization(text=1.text; max_length=50)"],
    ),
    (
        "Give me the key points of the attached report, then read them aloud",
        ("report.pdf",),
        ["image-to-text(image=file1)", "summarization(text=1.text)", "text-to-speech(text=2.text)"],
    ),
    ("tl;dr", ("notes.txt",), ["summarization(text=file1)"]),
    (
        "What's the mood of this voicemail?",
        ("vm.wav",),
        ["automatic-speech-recognition(audio=file1)", "text-classification(text=1.text)"],
    ),
    (
        "Is the customer in this recording happy or angry?",
        ("call.wav",),
        ["automatic-speech-recognition(audio=file1)", "text-classification(text=1.text)"],
    ),
    (
        "Count the faces in both photos",
        ("a.jpg", "b.jpg"),
        ["object-detection(image=file1)", "object-detection(image=file2)"],
    ),
    (
        "How many people are in team.jpg? Also make it black and white.",
        ("team.jpg",),
        ["object-detection(image=file1)", "image-to-image(image=file1, instruction='make it black and white')"],
    ),
    ("Cut the dog out of its background", ("dog.jpg",), ["image-segmentation(image=file1)"]),
    (
        "Remove the background noise from interview.wav and transcribe it",
        ("interview.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    (
        "Clean up this audio, write down what is said, and summarize it",
        ("lecture.mp3",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)", "summarization(text=2.text)"],
    ),
    (
        "Find all names and dates in letter.png",
        ("letter.png",),
        ["image-to-text(image=file1)", "token-classification(text=1.text)"],
    ),
    ("Which companies are mentioned in this article?", ("article.txt",), ["token-classification(text=file1)"]),
    (
        "Who wrote this letter?",
        ("letter.txt",),
        ["question-answering(question='Who wrote this letter?', context=file1)"],
    ),
    (
        "When is the rent due according to lease.pdf?",
        ("lease.pdf",),
        ["document-question-answering(image=file1, question='When is the rent due according to lease.pdf?')"],
    ),
    (
        "What is the total amount and what is the due date?",
        ("invoice.pdf",),
        [
            "document-question-answering(image=file1, question='What is the total amount')",
            "document-question-answering(image=file1, question='What is the due date?')",
        ],
    ),
    (
        "Make it greyscale, rotate it 90 degrees and sharpen it",
        ("cat.png",),
        [
            "image-to-image(image=file1, instruction='Make it greyscale')",
            "image-to-image(image=1.image, instruction='rotate it 90 degrees')",
            "image-to-image(image=2.image, instruction='sharpen it')",
        ],
    ),
    (
        "resize it to 200x100 and then rotate it 90 degrees clockwise",
        ("flag.png",),
        [
            "image-to-image(image=file1, instruction='resize it to 200x100')",
            "image-to-image(image=1.image, instruction='rotate it 90 degrees clockwise')",
        ],
    ),
    (
        "make these two black and white",
        ("face.jpg", "apple.png"),
        [
            "image-to-image(image=file1, instruction='make it black and white')",
            "image-to-image(image=file2, instruction='make it black and white')",
        ],
    ),
    (
        "I lost my glasses so I can't read this. When is my appointment now?",
        ("letter.pdf",),
        ["document-question-answering(image=file1, question='When is my appointment now?')"],
    ),
    ("i can't make out what's written here", ("sign.png",), ["image-to-text(image=file1)"]),
    (
        "Sorry to bother you, would you mind checking what the electrician's email is? Cheers!",
        ("bill.pdf",),
        ['document-question-answering(image=file1, question="What the electrician\'s email is?")'],
    ),
    (
        "which email address do I write to for the jazz thing?",
        ("poster.png",),
        ["document-question-answering(image=file1, question='Which email address do I write to for the jazz thing?')"],
    ),
    (
        "On which page does it say how to clean the kettle?",
        ("manual.pdf",),
        ["document-question-answering(image=file1, question='On which page does it say how to clean the kettle?')"],
    ),
    (
        "waht is teh total on this reciept",
        ("receipt.jpg",),
        ["document-question-answering(image=file1, question='What is the total on this receipt')"],
    ),
    ("plz reed this", ("poster.png",), ["image-to-text(image=file1)"]),
    ("trun this text in to speach", ("article.txt",), ["text-to-speech(text=file1)"]),
    (
        "find all email adresses, phone nubmers and dates in this letter",
        ("letter.txt",),
        ["token-classification(text=file1)"],
    ),
    ("cuont the poeple on teh foto", ("friends.jpg",), ["object-detection(image=file1)"]),
    ("mkae it brigter", ("apple.png",), ["image-to-image(image=file1, instruction='make it brighter')"]),
    (
        "hwo many archs were damadged",
        ("article.txt",),
        ["question-answering(question='How many arches were damaged', context=file1)"],
    ),
    (
        "Turn the first image into a pencil sketch and blur the second one",
        ("one.jpg", "two.jpg"),
        [
            "image-to-image(image=file1, instruction='Turn the first image into a pencil sketch')",
            "image-to-image(image=file2, instruction='blur the second one')",
        ],
    ),
    (
        'Say "Welcome to the museum" with a female voice',
        (),
        ["text-to-speech(text='Welcome to the museum'; voice=female)"],
    ),
    (
        "Read this aloud slowly: The train departs at nine.",
        (),
        ["text-to-speech(text='The train departs at nine.'; speed=0.75)"],
    ),
    (
        "Is 'I can't believe how good this is!' positive or negative?",
        (),
        ['text-classification(text="I can\'t believe how good this is!")'],
    ),
    (
        'What language is "Guten Morgen, wie geht es dir"?',
        (),
        ["text-classification(text='Guten Morgen, wie geht es dir')"],
    ),
    (
        "Detect the language of the text in the image",
        ("menu.png",),
        ["image-to-text(image=file1)", "text-classification(text=1.text)"],
    ),
    (
        "Summarize this article and tell me who is mentioned in it.",
        ("article.txt",),
        ["summarization(text=file1)", "token-classification(text=1.text)"],
    ),
    (
        "Here is a review: The battery died after two days. Is it positive or negative?",
        (),
        ["text-classification(text='The battery died after two days.')"],
    ),
    (
        "My order arrived broken and nobody answers the phone. What's the sentiment?",
        (),
        ["text-classification(text='My order arrived broken and nobody answers the phone.')"],
    ),
    (
        "transcribe meeting.wav, pull out the names, and summarise the transcript",
        ("meeting.wav",),
        [
            "automatic-speech-recognition(audio=file1)",
            "token-classification(text=1.text)",
            "summarization(text=1.text)",
        ],
    ),
    ("Summarize", ("a.txt", "b.txt"), ["summarization(text=file1)", "summarization(text=file2)"]),
    ("Convert speech.wav to text", ("speech.wav",), ["automatic-speech-recognition(audio=file1)"]),
    ("Convert this text to speech", ("poem.txt",), ["text-to-speech(text=file1)"]),
    (
        "From the invoice, tell me the invoice number. From the photo, count the people.",
        ("invoice.pdf", "photo.jpg"),
        ["document-question-answering(image=file1, question='The invoice number')", "object-detection(image=file2)"],
    ),
    (
        "1. Read the text in the picture\n2. Summarize it\n3. Read the summary aloud",
        ("page.png",),
        ["image-to-text(image=file1)", "summarization(text=1.text)", "text-to-speech(text=2.text)"],
    ),
    (
        "Do the following with scan.pdf:\n- extract the text\n- find dates and amounts\n- tell me if it is friendly",
        ("scan.pdf",),
        ["image-to-text(image=file1)", "token-classification(text=1.text)", "text-classification(text=1.text)"],
    ),
    (
        "segment this image, and sketch the original image too",
        ("a.png",),
        ["image-segmentation(image=file1)", "image-to-image(image=file1, instruction='sketch the original image too')"],
    ),
    ("Don't translate it, just summarize it", ("a.txt",), ["summarization(text=file1)"]),
    (
        "I'd like to know how the speaker feels in this clip",
        ("clip.wav",),
        ["automatic-speech-recognition(audio=file1)", "text-classification(text=1.text)"],
    ),
    (
        "Listen to this recording and answer: what time is the meeting?",
        ("rec.wav",),
        [
            "automatic-speech-recognition(audio=file1)",
            "question-answering(question='What time is the meeting?', context=1.text)",
        ],
    ),
    (
        "resize photo.jpg to 800x600",
        ("photo.jpg",),
        ["image-to-image(image=file1, instruction='resize photo.jpg to 800x600')"],
    ),
    ("Make an audio version of chapter1.txt", ("chapter1.txt",), ["text-to-speech(text=file1)"]),
    ("Upscale this photo 2x", ("p.jpg",), ["image-to-image(image=file1, instruction='Upscale this photo 2x')"]),
    ("hi, can u read me whats in the pic", ("IMG_2034.jpg",), ["image-to-text(image=file1)"]),
    ("what does it say", ("IMG_2034.jpg",), ["image-to-text(image=file1)"]),
    ("what is written on the whiteboard?", ("wb.jpg",), ["image-to-text(image=file1)"]),
    (
        "Get me a transcript of the podcast and list the people and places mentioned in it.",
        ("podcast.mp3",),
        ["automatic-speech-recognition(audio=file1)", "token-classification(text=1.text)"],
    ),
    (
        "summarise the attached pdf, pls. thanks!",
        ("Annual Report 2023.pdf",),
        ["image-to-text(image=file1)", "summarization(text=1.text)"],
    ),
    (
        "Give me a summary of Annual Report 2023.pdf and read it to me",
        ("Annual Report 2023.pdf",),
        ["image-to-text(image=file1)", "summarization(text=1.text)", "text-to-speech(text=2.text)"],
    ),
    ("Is this review good or bad?", ("review.txt",), ["text-classification(text=file1)"]),
    ("Does the author of this mail sound angry?", ("mail.txt",), ["text-classification(text=file1)"]),
    (
        "Please analyze the sentiment of each review.",
        ("r1.txt", "r2.txt", "r3.txt"),
        ["text-classification(text=file1)", "text-classification(text=file2)", "text-classification(text=file3)"],
    ),
    ("crop out the person", ("me.png",), ["image-segmentation(image=file1)"]),
    ("Make the background transparent", ("logo.jpg",), ["image-segmentation(image=file1)"]),
    (
        "make this picture smaller",
        ("big.jpg",),
        ["image-to-image(image=file1, instruction='make this picture smaller')"],
    ),
    (
        "flip the image horizontally, then brighten it a bit",
        ("x.png",),
        [
            "image-to-image(image=file1, instruction='flip the image horizontally')",
            "image-to-image(image=1.image, instruction='brighten it a bit')",
        ],
    ),
    ("find edges", ("x.png",), ["image-to-image(image=file1, instruction='find edges')"]),
    (
        "Who is this invoice from and how much do I owe?",
        ("inv.pdf",),
        [
            "document-question-answering(image=file1, question='Who is this invoice from')",
            "document-question-answering(image=file1, question='How much do I owe?')",
        ],
    ),
    ("What's the IBAN?", ("inv.png",), ['document-question-answering(image=file1, question="What\'s the IBAN?")']),
    (
        "Extract all amounts of money from inv.png",
        ("inv.png",),
        ["image-to-text(image=file1)", "token-classification(text=1.text)"],
    ),
    (
        "I have a letter (letter.png). Could you tell me what it is about in a few sentences?",
        ("letter.png",),
        ["image-to-text(image=file1)", "summarization(text=1.text)"],
    ),
    (
        "Please tell me what language the letter is written in, then summarize it.",
        ("letter.png",),
        ["image-to-text(image=file1)", "text-classification(text=1.text)", "summarization(text=1.text)"],
    ),
    ("Denoise the recording", ("n.wav",), ["audio-to-audio(audio=file1)"]),
    (
        "reduce noise in n.wav and give me the transcript of the clean version",
        ("n.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    (
        "Convert the following to speech: Dear passengers, the train to York is delayed.",
        (),
        ["text-to-speech(text='Dear passengers, the train to York is delayed.')"],
    ),
    ("Can you pronounce 'Worcestershire'?", (), ["text-to-speech(text='Worcestershire')"]),
    ('Speak the words "good night" in German', (), ["text-to-speech(text='good night'; language=de)"]),
    (
        "Read this poem aloud:\n\nRoses are red,\nviolets are blue,\nsugar is sweet.",
        (),
        ["text-to-speech(text='Roses are red,\\nviolets are blue,\\nsugar is sweet.')"],
    ),
    (
        "The weather was awful, the room was dirty and the staff was rude.\n\nHow does the guest feel about the stay?",
        (),
        ["text-classification(text='The weather was awful, the room was dirty and the staff was rude.')"],
    ),
    (
        "Marie was born in Warsaw. She moved away.\n\nWhen did she move?",
        (),
        ["question-answering(question='When did she move?', context='Marie was born in Warsaw. She moved away.')"],
    ),
    (
        "Find the names in this text: Marie Curie met Albert Einstein in Brussels in 1911.",
        (),
        ["token-classification(text='Marie Curie met Albert Einstein in Brussels in 1911.')"],
    ),
    (
        'Here is my text. "Marie met Albert in Brussels on 3 May 1911." Extract the dates and tell me the language.',
        (),
        [
            "token-classification(text='Marie met Albert in Brussels on 3 May 1911.')",
            "text-classification(text='Marie met Albert in Brussels on 3 May 1911.')",
        ],
    ),
    (
        "Count the people in the photo, and if you can, tell me how many faces there are.",
        ("p.jpg",),
        ["object-detection(image=file1)", "object-detection(image=file1)"],
    ),
    (
        "Detect faces in group.jpg, then read out how many there are",
        ("group.jpg",),
        ["object-detection(image=file1)", "text-to-speech(text=1.text)"],
    ),
    ("How many people?", ("p.jpg",), ["object-detection(image=file1)"]),
    ("people count please", ("p.jpg",), ["object-detection(image=file1)"]),
    ("Are there any faces in this image?", ("p.jpg",), ["object-detection(image=file1)"]),
    (
        "read a.png, b.png and c.png aloud",
        ("a.png", "b.png", "c.png"),
        [
            "image-to-text(image=file1)",
            "image-to-text(image=file2)",
            "image-to-text(image=file3)",
            "text-to-speech(text=1.text)",
            "text-to-speech(text=2.text)",
            "text-to-speech(text=3.text)",
        ],
    ),
    (
        "Read the text of each image and tell me which names occur",
        ("a.png", "b.png"),
        [
            "image-to-text(image=file1)",
            "image-to-text(image=file2)",
            "token-classification(text=1.text)",
            "token-classification(text=2.text)",
        ],
    ),
    (
        "do OCR on scan.pdf, then find all dates, then say the dates aloud",
        ("scan.pdf",),
        ["image-to-text(image=file1)", "token-classification(text=1.text)", "text-to-speech(text=2.text)"],
    ),
    ("good morning! please transcribe memo.m4a.wav", ("memo.m4a.wav",), ["automatic-speech-recognition(audio=file1)"]),
    (
        "Make it black & white and save it as out.png",
        ("x.jpg",),
        ["image-to-image(image=file1, instruction='Make it black & white')"],
    ),
    (
        "Tell me what is said in call1.wav and call2.wav",
        ("call1.wav", "call2.wav"),
        ["automatic-speech-recognition(audio=file1)", "automatic-speech-recognition(audio=file2)"],
    ),
    (
        "Turn speech.wav into text, check its sentiment, and read a summary of it aloud in a male voice",
        ("speech.wav",),
        [
            "automatic-speech-recognition(audio=file1)",
            "text-classification(text=1.text)",
            "summarization(text=1.text)",
            "text-to-speech(text=3.text; voice=male)",
        ],
    ),
    (
        "Please do two things: 1) rotate the photo 180 degrees 2) count the faces in the original",
        ("f.jpg",),
        ["image-to-image(image=file1, instruction='rotate the photo 180 degrees')", "object-detection(image=file1)"],
    ),
]

STANDARD_CASES: list[Row] = [
    (
        "Generate an image of a cat in a hat, then describe it and read the description aloud",
        (),
        ["text-to-image(text='a cat in a hat')", "image-to-text(image=1.image)", "text-to-speech(text=2.text)"],
    ),
    (
        "Write a short story about a robot, illustrate it and turn it into speech",
        (),
        [
            "text-generation(text='Write a short story about a robot')",
            "text-to-image(text=1.text)",
            "text-to-speech(text=1.text)",
        ],
    ),
    ("Make a video of a panda surfing", (), ["text-to-video(text='a panda surfing')"]),
    ("Animate this picture", ("x.png",), ["image-to-video(image=file1)"]),
    (
        "Describe what happens in this video and translate it to Italian",
        ("v.mp4",),
        ["video-to-text(video=file1)", "translation(text=1.text; target_language=it)"],
    ),
    (
        "Is this a picture of a cat, a dog or a bird?",
        ("x.png",),
        ["zero-shot-image-classification(image=file1; candidate_labels=['cat', 'dog', 'bird'])"],
    ),
    (
        "Find the red umbrella and the bicycle in this photo",
        ("x.png",),
        ["zero-shot-object-detection(image=file1; candidate_labels=['red umbrella', 'bicycle'])"],
    ),
    ("What breed is the dog in this picture?", ("x.png",), ["image-classification(image=file1)"]),
    (
        "Upscale this photo, then detect the objects in it",
        ("x.png",),
        ["image-super-resolution(image=file1)", "object-detection(image=1.image)"],
    ),
    ("Estimate the depth of this scene", ("x.png",), ["depth-estimation(image=file1)"]),
    ("Detect the pose of the person in this image", ("x.png",), ["keypoint-detection(image=file1)"]),
    (
        "Generate a picture of a robot from this edges map",
        ("map.png",),
        ["canny-text-to-image(image=file1, text='a robot')"],
    ),
    (
        "Replace the masked part of photo.png with a tree (mask.png)",
        ("photo.png", "mask.png"),
        ["inpainting(image=file1, text='Replace the masked part of photo.png with a tree (mask.png)', mask=file2)"],
    ),
    ("What sound is this?", ("x.wav",), ["audio-classification(audio=file1)"]),
    ("When does somebody speak in this audio?", ("x.wav",), ["voice-activity-detection(audio=file1)"]),
    (
        "Generate calm piano music for 20 seconds",
        (),
        ["text-to-audio(text='calm piano music for 20 seconds'; duration=20.0)"],
    ),
    (
        "How similar are 'I am happy' and 'I feel great'?",
        (),
        ["sentence-similarity(text='I am happy', sentences=['I feel great'])"],
    ),
    (
        "Compare a.txt and b.txt for similarity",
        ("a.txt", "b.txt"),
        ["sentence-similarity(text=file1, sentences=[file2])"],
    ),
    ("Compute the embedding of this sentence: cats are nice", (), ["feature-extraction(text='cats are nice')"]),
    ("Fill in the blank: Paris is the [MASK] of France", (), ["fill-mask(text='Paris is the [MASK] of France')"]),
    (
        "Rephrase 'give me that' more politely",
        (),
        ["text2text-generation(text=\"Rephrase 'give me that' more politely\")"],
    ),
    (
        "Which product sold best?",
        ("sales.csv",),
        ["table-question-answering(question='Which product sold best?', table=file1)"],
    ),
    (
        "What is the average price in the table?",
        ("sales.csv",),
        ["table-question-answering(question='What is the average price in the table?', table=file1)"],
    ),
    (
        "What colour is the car in this photo?",
        ("x.png",),
        ["visual-question-answering(image=file1, question='What colour is the car in this photo?')"],
    ),
    (
        "Translate this letter from German to English",
        ("brief.txt",),
        ["translation(text=file1; source_language=de, target_language=en)"],
    ),
    ("How do you say 'good morning' in Japanese?", (), ["translation(text='good morning'; target_language=ja)"]),
    (
        "Translate report.pdf to French and Spanish, then read both translations aloud",
        ("report.pdf",),
        [
            "image-to-text(image=file1)",
            "translation(text=1.text; target_language=fr)",
            "translation(text=1.text; target_language=es)",
            "text-to-speech(text=2.text; language=fr)",
            "text-to-speech(text=3.text; language=es)",
        ],
    ),
    (
        "Summarize article.txt in German",
        ("article.txt",),
        ["summarization(text=file1)", "translation(text=1.text; target_language=de)"],
    ),
    (
        "Transcribe the podcast, translate it into English and summarize the translation in 100 words",
        ("p.mp3",),
        [
            "automatic-speech-recognition(audio=file1)",
            "translation(text=1.text; target_language=en)",
            "summarization(text=2.text; max_length=100)",
        ],
    ),
    ("Set this picture in motion", ("x.png",), ["image-to-video(image=file1)"]),
    ("Classify this image, top 3", ("x.png",), ["image-classification(image=file1; top_k=3)"]),
    ("Detect objects with confidence above 0.7", ("x.png",), ["object-detection(image=file1; threshold=0.7)"]),
    ("Chat with me about the weather", (), ["conversational(text='Chat with me about the weather')"]),
    ("What is the capital of France?", (), ["conversational(text='What is the capital of France?')"]),
    (
        "Create an image from the summary of story.txt",
        ("story.txt",),
        ["summarization(text=file1)", "text-to-image(text=1.text)"],
    ),
    (
        "Cut out the person, then blur the original photo",
        ("x.png",),
        ["image-segmentation(image=file1)", "image-to-image(image=file1, instruction='blur the original photo')"],
    ),
    (
        "remove the background of x.png and count the people in the result",
        ("x.png",),
        ["image-segmentation(image=file1)", "object-detection(image=1.image)"],
    ),
    (
        'Sort this message into billing, shipping or other: "Where is my parcel?"',
        (),
        ["zero-shot-classification(text='Where is my parcel?'; candidate_labels=['billing', 'shipping', 'other'])"],
    ),
]


@pytest.mark.parametrize(("text", "files", "expected"), LITE_CASES, ids=lambda value: str(value)[:40])
def test_request_is_planned_with_lite_tasks(text: str, files: tuple[str, ...], expected: list[str]) -> None:
    draft = embedded_plan(plan_request(text, files))
    assert notation(draft.tasks) == expected
    assert draft.notes == ()


@pytest.mark.parametrize(("text", "files", "expected"), STANDARD_CASES, ids=lambda value: str(value)[:40])
def test_every_standard_task_can_be_planned(text: str, files: tuple[str, ...], expected: list[str]) -> None:
    draft = embedded_plan(plan_request(text, files), STANDARD)
    assert notation(draft.tasks) == expected
    assert draft.notes == ()


@pytest.mark.parametrize(
    ("text", "files", "tasks", "kind", "message"),
    [
        ("Translate 'good morning' into French", (), [], NoteKind.UNMAPPED, "translation"),
        ("Draw a castle on a hill", (), [], NoteKind.UNMAPPED, "text-to-image"),
        ("Generate calm piano music", (), [], NoteKind.UNMAPPED, "hugginggpt experts add"),
        ("What is the highest temperature in the table?", ("weather.csv",), [], NoteKind.UNMAPPED, "table-question"),
        ("Is this mail about sports, politics or cooking? 'It ended 3:1.'", (), [], NoteKind.UNMAPPED, "zero-shot"),
        (
            "How many people are in pic.png? Are they happy?",
            ("pic.png",),
            ["object-detection"],
            NoteKind.UNMAPPED,
            "visual",
        ),
        ("order me a pizza", (), [], NoteKind.UNMAPPED, "no kind of task"),
        ("delete all my files", ("a.txt",), [], NoteKind.UNMAPPED, "no kind of task"),
        ("Read the text in a.png and order me a pizza", ("a.png",), ["image-to-text"], NoteKind.UNMAPPED, "pizza"),
        ("make the recording louder", ("a.wav",), [], NoteKind.UNMAPPED, "no kind of task here does"),
        ("explain this to me", ("a.txt",), [], NoteKind.UNMAPPED, "no kind of task here does"),
        ("remove the person", ("a.jpg",), [], NoteKind.UNMAPPED, "no kind of task here does"),
        (
            "summarize the second page",
            ("a.pdf",),
            ["image-to-text", "summarization"],
            NoteKind.UNMAPPED,
            "is about a part",
        ),
        (
            "how many people are there altogether",
            ("a.png", "b.png"),
            ["object-detection", "object-detection"],
            NoteKind.UNMAPPED,
            "add the numbers up",
        ),
        ("asdf qwer zxcv", (), [], NoteKind.UNMAPPED, "not understood"),
        ("Blur it", (), [], NoteKind.CLARIFY, "send the picture"),
        ("Summarize the report", (), [], NoteKind.CLARIFY, "paste the text"),
        ("Read the text in this image", ("a.txt",), [], NoteKind.CLARIFY, "send the picture"),
        ("Transcribe the recording", (), [], NoteKind.CLARIFY, "send the recording"),
        ("give me this as ogg", ("sign.png",), [], NoteKind.CLARIFY, "needs a recording"),
        ("write down what was said", ("sign.png",), [], NoteKind.CLARIFY, "needs a recording"),
        ("Read sign.jpg aloud", ("photo.png",), [], NoteKind.CLARIFY, "sign.jpg is named but was not sent"),
        ("Sharpen report.docx", ("photo.png",), [], NoteKind.CLARIFY, "what was sent is photo.png"),
        ("Summarize https://example.com/paper.pdf", (), [], NoteKind.CLARIFY, "https://example.com/paper.pdf"),
        ("here is my new photo", ("me.png",), [], NoteKind.CLARIFY, "Say what to do with me.png"),
        ("hello there!", (), [], NoteKind.CHAT, "Hello!"),
        ("Thanks, that was great!", (), [], NoteKind.CHAT, "You are welcome."),
        ("ok perfect", (), [], NoteKind.CHAT, "All right."),
        ("lovely, enjoy your weekend", ("rates.csv",), [], NoteKind.CHAT, "Goodbye."),
        ("oh wow, you really saved my day", (), [], NoteKind.CHAT, "You are welcome."),
        ("that's exactly what i needed, cheers", ("a.txt",), [], NoteKind.CHAT, "You are welcome."),
        ("am I talking to a human?", (), [], NoteKind.CHAT, "I am a program"),
        ("wait, are you actually a robot", (), [], NoteKind.CHAT, "I am a program"),
        ("what can you do?", (), [], NoteKind.CHAT, "pictures, recordings and documents"),
        ("Good morning, what can you do?", (), [], NoteKind.CHAT, "pictures, recordings and documents"),
        ("What is the capital of France?", (), [], NoteKind.CHAT, "needs a text or a file"),
    ],
)
def test_unplannable_part_of_request_yields_note(
    text: str, files: tuple[str, ...], tasks: list[str], kind: NoteKind, message: str
) -> None:
    draft = embedded_plan(plan_request(text, files))
    assert [task.task for task in draft.tasks] == tasks
    (note,) = draft.notes
    assert note.kind == kind
    assert message in note.text


def test_tasks_that_depend_on_an_unplannable_one_are_not_planned() -> None:
    draft = embedded_plan(
        plan_request("Transcribe a.wav, translate the transcript into Spanish and read it aloud.", ["a.wav"])
    )
    assert notation(draft.tasks) == ["automatic-speech-recognition(audio=file1)"]
    assert [note.span for note in draft.notes] == ["translate the transcript into Spanish", "read it aloud"]


def test_task_has_its_source_text() -> None:
    draft = embedded_plan(
        plan_request("Please read the text in sign.png aloud, and tell me whether it sounds happy.", ["sign.png"])
    )
    aloud, classify = "read the text in sign.png aloud", "tell me whether it sounds happy"
    assert [task.source for task in draft.tasks] == [aloud, aloud, classify]


def test_task_is_repeated_for_each_file_up_to_the_limit() -> None:
    names = [f"page{number}.png" for number in range(SPLIT_LIMIT + 1)]
    draft = embedded_plan(plan_request("Read the text in all of these images", names))
    assert [task.id for task in draft.tasks] == list(range(1, SPLIT_LIMIT + 1))
    (note,) = draft.notes
    assert f"first {SPLIT_LIMIT} of {SPLIT_LIMIT + 1}" in note.text


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        (
            "summarize the first and read the second aloud",
            ("a.txt", "b.txt"),
            ["summarization(text=file1)", "text-to-speech(text=file2)"],
        ),
        (
            "read the sign and summarize the letter",
            ("a.png", "b.txt"),
            ["image-to-text(image=file1)", "summarization(text=file2)"],
        ),
        ("what does the first caller say", ("a.wav", "b.wav"), ["automatic-speech-recognition(audio=file1)"]),
        (
            "who wrote the second letter",
            ("a.txt", "b.txt"),
            ["question-answering(question='Who wrote the second letter', context=file2)"],
        ),
    ],
)
def test_file_is_told_by_number_or_kind(text: str, files: tuple[str, ...], expected: list[str]) -> None:
    assert notation(embedded_plan(plan_request(text, files)).tasks) == expected


def test_people_in_a_document_are_not_looked_for_in_its_picture() -> None:
    (task,) = embedded_plan(plan_request("how many people signed it", ["a.pdf"])).tasks
    assert task.task == "document-question-answering"


def test_ambiguous_request_has_lower_confidence() -> None:
    unambiguous = embedded_plan(plan_request("Blur both photos", ["a.png", "b.png"])).decision
    ambiguous = embedded_plan(plan_request("Blur the photo", ["a.png", "b.png"])).decision
    assert unambiguous.controller == ambiguous.controller == "embedded"
    assert ambiguous.confidence < unambiguous.confidence <= 1


# ---------------------------------------------------------------- conversations

AFTER_SKETCH = (
    Turn(by_user=True, text="Make this a sketch", attachments=(Named("file1", file("cat.png")),)),
    Turn(by_user=False, text="Done.", attachments=(Named("task1.image", file("sketch.png")),)),
)
AFTER_TRANSLATION = (
    Turn(by_user=True, text="Translate 'good morning' into French"),
    Turn(by_user=False, text="Translation (fr): “bonjour”\n\n**How it was done**\n\n1. translation: m2m (text), 0.3 s"),
)


@pytest.mark.parametrize(
    ("earlier", "text", "expected"),
    [
        (AFTER_SKETCH, "Now blur it", ["image-to-image(image=<sketch.png>, instruction='blur it')"]),
        (AFTER_SKETCH, "How many faces are in the image I sent before?", ["object-detection(image=<cat.png>)"]),
        (AFTER_SKETCH, "Blur the original", ["image-to-image(image=<cat.png>, instruction='Blur the original')"]),
        (AFTER_SKETCH, "Read the text in cat.png", ["image-to-text(image=<cat.png>)"]),
        (AFTER_TRANSLATION, "Now say it aloud", ["text-to-speech(text='bonjour')"]),
    ],
)
def test_request_may_refer_to_earlier_turns(earlier: tuple[Turn, ...], text: str, expected: list[str]) -> None:
    draft = embedded_plan(plan_request(text, earlier=earlier))
    assert notation(draft.tasks) == expected
    assert draft.notes == ()


def test_files_of_this_turn_precede_earlier_ones() -> None:
    draft = embedded_plan(plan_request("Blur this photo", ["new.png"], earlier=AFTER_SKETCH))
    assert notation(draft.tasks) == ["image-to-image(image=file1, instruction='Blur this photo')"]


def test_text_input_is_used_as_argument() -> None:
    request = Request((Turn(by_user=True, text="Summarize this"),), (Named("text1", Text("A long story.")),))
    assert notation(embedded_plan(request).tasks) == ["summarization(text=text1)"]


# ---------------------------------------------------------------- unknown tasks

TEXT, IMAGE = Port("text", Modality.TEXT), Port("image", Modality.IMAGE)
NEW_TASKS: Catalogue = {
    spec.name: spec
    for spec in (
        Spec("text-reversal", "Writes a text backwards.", (TEXT,), (TEXT,), examples=("Reverse this text",)),
        Spec("word-count", "Counts words.", (TEXT,), (TEXT,), examples=("How many words are in this text?",)),
        Spec("barcode-reading", "Reads QR codes and barcodes in pictures.", (IMAGE,), (TEXT,)),
        Spec(
            "dice-roll",
            "Rolls dice.",
            (),
            (TEXT,),
            (Parameter("sides", '{"minimum":2,"type":"integer"}'), Parameter("colour", '{"enum":["red","blue"]}')),
            ("Roll a die",),
        ),
    )
}


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ("Reverse the text 'abc'", (), ["text-reversal(text='abc')"]),
        ("please do text-reversal on 'abc'", (), ["text-reversal(text='abc')"]),
        ("write 'abc' backwards", (), ["text-reversal(text='abc')"]),
        (
            "read the text in sign.png and reverse it, then say it aloud",
            ("sign.png",),
            ["image-to-text(image=file1)", "text-reversal(text=1.text)", "text-to-speech(text=2.text)"],
        ),
        ("How many words are in letter.txt?", ("letter.txt",), ["word-count(text=file1)"]),
        ("Scan the barcode", ("code.png",), ["barcode-reading(image=file1)"]),
        ("Roll a blue die with 20 sides", (), ["dice-roll(; colour=blue, sides=20)"]),
        ("How many people are in x.png?", ("x.png",), ["object-detection(image=file1)"]),
    ],
)
def test_unknown_task_is_planned_by_its_description(text: str, files: tuple[str, ...], expected: list[str]) -> None:
    offered = {name: spec for name, spec in LITE.items() if name != "text-statistics"}  # it counts words, too
    draft = embedded_plan(plan_request(text, files), {**offered, **NEW_TASKS})
    assert notation(draft.tasks) == expected
    assert draft.notes == ()


# ---------------------------------------------------------------- random text

PIECES = """
read|the text|in|sign.png|aloud|, and then |translate it|into French|"quoted"
'x'|summarize|: |?|.|1.|how many people
blur|the second image|(|)|“a”|both|it|\ue001|é|İ|漢字|😀|\u202e|```|http://x.y/z.png|answer the question|total
to|or|from the table|[MASK]|about cats, dogs or birds|in 50 words|512x512|\x00|save it as out.png|compare|each|don't
""".replace("\n", "|").split("|")
LONG_TEXTS = (
    "a" * 50_000,
    "read the text " * 3_000,
    "'" * 5_001,
    " " * 50_000 + "x",
    "summarize: " + "lorem ipsum. " * 5_000,
    "x.png " * 3_000,
    "and " * 10_000,
    "remove " + "a " * 4_000 + "from the image",
)


def random_text(seed: int) -> str:
    chance = random.Random(seed)
    if seed % 2:
        return " ".join(chance.choices(PIECES, k=chance.randint(1, 30)))
    return "".join(chr(chance.choice((chance.randint(9, 126), chance.randint(160, 0x2FFF)))) for _ in range(200))


@pytest.mark.parametrize("catalogue", [LITE, STANDARD, {}], ids=["lite", "standard", "empty"])
def test_random_text_yields_valid_plan_or_note(catalogue: Catalogue) -> None:
    names = ("sign.png", "a b.pdf", "x.wav", "t.txt", "s.csv", "v.mp4")
    for text in (*map(random_text, range(250)), *LONG_TEXTS):
        request = plan_request(text, names[: len(text) % 7])
        draft = embedded_plan(request, catalogue)
        assert draft.tasks or draft.notes, text
        faults = find_faults(draft.tasks, catalogue, {named.name: named.value for named in request.inputs})
        assert not draft.tasks or faults == [], text
