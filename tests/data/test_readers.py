"""Readers of the real data sets' files, on small files made here; and their errors for missing, damaged and hostile files."""

import gzip
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
import transformer_c as tc
from mnist_files import idx
from transformer_c.datasets import TextVectorization, load_cifar100, load_features, load_mnist, load_reviews

# ---- MNIST --------------------------------------------------------------------------------------------------------------------------

MNIST = {"train-images-idx3-ubyte": 3, "train-labels-idx1-ubyte": 1, "t10k-images-idx3-ubyte": 3, "t10k-labels-idx1-ubyte": 1}


@pytest.fixture
def mnist(tmp_path, rng):
    """A folder of MNIST's files and their arrays."""
    arrays = {}
    for name, axes in MNIST.items():
        count = 5 if name.startswith("train") else 3
        array = rng.integers(0, 256, (count, 28, 28)) if axes == 3 else rng.integers(0, 10, count)
        arrays[name] = array.astype(np.uint8)
        (tmp_path / name).write_bytes(idx(arrays[name]))
    return tmp_path, arrays


def check_mnist(folder, arrays):
    found = [part for pair in load_mnist(folder) for part in pair]
    for (name, expected), array in zip(arrays.items(), found, strict=True):
        assert (array == expected).all() and array.dtype == (np.uint8 if "images" in name else np.int64) and array.flags.writeable


def test_mnist(mnist):
    check_mnist(*mnist)
    folder, arrays = mnist
    check_mnist(str(folder), arrays)


def test_mnist_compressed_and_with_dots(mnist):
    folder, arrays = mnist
    for i, name in enumerate(arrays):
        data = (folder / name).read_bytes()
        (folder / name).unlink()
        other = name.replace("-idx", ".idx") if i < 2 else name
        (folder / (other if i % 2 else f"{other}.gz")).write_bytes(data if i % 2 else gzip.compress(data))
    check_mnist(folder, arrays)


def test_mnist_feeds_the_spanish_post(mnist):
    from transformer_c.tutorials import sensio

    dm = sensio.MNISTDataModule(batch_size=2, Dataset=sensio.AttnDataset, data=load_mnist(mnist[0]))
    images, labels = next(iter(dm.train_dataloader()))
    assert images.shape == (2, 16, 49) and images.numpy().max() <= 1 and labels.shape == (2,)


def test_mnist_that_is_not_there(tmp_path, mnist):
    with pytest.raises(NotADirectoryError, match="folder of the four files"):
        load_mnist(tmp_path / "nowhere")
    (mnist[0] / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="t10k-labels-idx1-ubyte.gz"):
        load_mnist(mnist[0])


IMAGES = idx(np.zeros((5, 28, 28), np.uint8))
HUGE = struct.pack(">BBBBIII", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
BAD_IDX = {
    "empty": (b"", "nothing"),
    "text": (b"<html>", "3c 68 74 6d"),
    "another type": (b"\0\0\x0d\x03" + IMAGES[4:], "00 00 0d 03"),
    "labels for images": (idx(np.zeros(5, np.uint8)), "1 axes"),
    "cut in the header": (IMAGES[:9], "cut off in its header"),
    "cut in the data": (IMAGES[:-1], "cut off: 3919 of 3920"),
    "longer": (IMAGES + b"x", "more than the 3920 bytes"),
    "huge claim": (HUGE, "at most 1024 MiB"),
    "other count": (idx(np.zeros((4, 28, 28), np.uint8)), "4 images but 5 labels"),
}


@pytest.mark.parametrize("case", BAD_IDX)
@pytest.mark.parametrize("compressed", [False, True])
def test_mnist_damaged(mnist, case, compressed):
    folder, _ = mnist
    data, message = BAD_IDX[case]
    file = folder / "train-images-idx3-ubyte"
    if compressed:
        file.unlink()
        file, data = folder / "train-images-idx3-ubyte.gz", gzip.compress(data)
    file.write_bytes(data)
    with pytest.raises(tc.CheckpointError, match=message) as error:
        load_mnist(folder)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize("cut", [0, 1, 5, 12, -1, -9])
def test_mnist_gzip_damaged(mnist, cut):
    folder, arrays = mnist
    file = folder / "train-labels-idx1-ubyte"
    file.unlink()
    whole = gzip.compress(idx(arrays[file.name]))
    (folder / f"{file.name}.gz").write_bytes(whole[:cut] if cut else b"not gzip")
    with pytest.raises(tc.CheckpointError, match="train-labels"):
        load_mnist(folder)


def test_mnist_pipe(mnist):
    file = mnist[0] / "train-labels-idx1-ubyte"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(tc.CheckpointError, match="pipe"):
        load_mnist(mnist[0])


# ---- CIFAR-100 ------------------------------------------------------------------------------------------------------------------------


def cifar_part(rng, count):
    data = rng.integers(0, 256, (count, 3072)).astype(np.uint8)
    fine, coarse = ([int(v) for v in rng.integers(0, n, count)] for n in (100, 20))
    return {"data": data, "fine_labels": fine, "coarse_labels": coarse, "filenames": [f"{i}.png" for i in range(count)], "batch_label": "b"}


def python_2_pickle(part):
    """The output of Python 2's pickle, as in the real files: its strings, NumPy's old names, a memo."""
    out = [b"\x80\x02}q\x00("]
    text = lambda s: b"U" + bytes([len(s)]) + s.encode()
    for i, (key, value) in enumerate(part.items()):
        out.append(text(key) + b"q" + bytes([i + 1]))
        if isinstance(value, np.ndarray):
            data = value.tobytes()
            out += [b"cnumpy.core.multiarray\n_reconstruct\nq\x20cnumpy\nndarray\nq\x21K\x00\x85", text("b"), b"\x87Rq\x22(K\x01"]
            out += [b"M" + struct.pack("<H", n) for n in value.shape] + [b"\x86"]
            out += [
                b"cnumpy\ndtype\nq\x23",
                text("u1"),
                b"K\x00K\x01\x87Rq\x24(K\x03",
                text("|"),
                b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            ]
            out += [b"\x89T", struct.pack("<I", len(data)), data, b"tb"]
        elif isinstance(value, list):
            out += [b"]("] + [text(v) if isinstance(v, str) else b"K" + bytes([v]) for v in value] + [b"e"]
        else:
            out.append(text(value))
    stream = b"".join(out) + b"u."
    # a memo is numbered from 0 without gaps by a real writer
    return renumber(stream)


def renumber(stream):
    """Rewrites the indices of BINPUT in the order in which they occur (nothing here refers to them)."""
    import pickletools

    result, last, found = bytearray(stream), 0, 0
    for opcode, _, place in pickletools.genops(stream):
        if opcode.name == "BINPUT":
            result[place + 1] = found
            found += 1
        last = place
    assert last
    return bytes(result)


@pytest.fixture
def cifar(tmp_path, rng):
    parts = {"train": cifar_part(rng, 6), "test": cifar_part(rng, 4)}
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, part in parts.items():
        (folder / name).write_bytes(python_2_pickle(part))
    return folder, parts


def check_cifar(path, parts, labels="fine"):
    for part, (images, classes) in zip(parts.values(), load_cifar100(path, labels), strict=True):
        assert images.dtype == np.uint8 and classes.dtype == np.int64 and classes.tolist() == part[f"{labels}_labels"]
        assert (images.transpose(0, 3, 1, 2).reshape(len(images), -1) == part["data"]).all()


def test_cifar_of_python_2(cifar):
    folder, parts = cifar
    loaded = pickle.loads((folder / "train").read_bytes(), encoding="bytes")  # Python agrees about the file made here
    assert (loaded[b"data"] == parts["train"]["data"]).all() and loaded[b"fine_labels"] == parts["train"]["fine_labels"]
    for labels in ("fine", "coarse"):
        check_cifar(folder, parts, labels)
    check_cifar(folder.parent, parts)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_cifar_of_python_3(cifar, protocol):
    folder, parts = cifar
    for name, part in parts.items():
        keys = part if protocol % 2 else {k.encode(): v for k, v in part.items()}
        (folder / name).write_bytes(pickle.dumps(keys, protocol))
    check_cifar(folder, parts)


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def bad_cifar(part):
    good = pickle.dumps(part, 4)
    change = lambda **entries: pickle.dumps({**part, **entries}, 4)
    return {
        "empty": (b"", "cut off"),
        "cut off": (good[: len(good) // 2], "cut off"),
        "text": (b"hello", "not an opcode|not run|damaged"),
        "a list": (pickle.dumps([1, 2], 4), "no 'data'"),
        "no labels": (pickle.dumps({"data": part["data"]}, 4), "fine_labels"),
        "too few labels": (change(fine_labels=part["fine_labels"][:-1]), "list of 6 numbers"),
        "labels too large": (change(fine_labels=[100] * 6), "from 0 to 99"),
        "labels of text": (change(fine_labels=["a"] * 6), "from 0 to 99"),
        "floats": (change(data=part["data"].astype(np.float32)), "float32"),
        "grey images": (change(data=part["data"][:, :1024]), "1024"),
        "data of text": (change(data="x"), "str"),
        "executes": (change(extra=Evil(os.system, ("exit 0",))), "calls '(posix|nt).system'"),
        "executes eval": (change(extra=Evil(eval, ("1+1",))), "eval"),
    }


@pytest.mark.parametrize("case", list(bad_cifar(cifar_part(np.random.default_rng(0), 6))))
def test_cifar_damaged_and_hostile(cifar, case, rng):
    folder, parts = cifar
    data, message = bad_cifar(parts["train"])[case]
    (folder / "train").write_bytes(data)
    with pytest.raises(tc.CheckpointError, match=message) as error:
        load_cifar100(folder)
    assert str(folder) in str(error.value)


def test_cifar_cut_anywhere(cifar):
    folder, _ = cifar
    whole = (folder / "test").read_bytes()
    for cut in range(0, len(whole), 97):
        (folder / "test").write_bytes(whole[:cut])
        with pytest.raises(tc.CheckpointError):
            load_cifar100(folder)


def test_cifar_that_is_not_there(cifar, tmp_path):
    with pytest.raises(NotADirectoryError, match="cifar-100-python"):
        load_cifar100(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="'fine' or 'coarse'"):
        load_cifar100(cifar[0], labels="all")
    (cifar[0] / "test").unlink()
    with pytest.raises(FileNotFoundError):
        load_cifar100(cifar[0])


def test_torch_files_may_still_not_have_strings_of_python_2():
    from transformer_c.checkpoint.pickle_machine import PickleMachine

    with pytest.raises(tc.CheckpointError, match="SHORT_BINSTRING"):
        PickleMachine(b"\x80\x02U\x01a.", {}, lambda _: None).run()
    assert PickleMachine(b"\x80\x02U\x01a.", {}, lambda _: None, python2=True).run() == b"a"


# ---- features --------------------------------------------------------------------------------------------------------------------------


def features(**changes):
    """Arrays as in the file of features; None omits one."""
    labels = np.repeat([0, 1], 8)
    good = {"train_features": np.ones((16, 3)), "train_labels": labels, "test_features": np.zeros((16, 3)), "test_labels": labels}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_features(tmp_path, write):
    """Any numbers, byte order and memory order; other arrays in the file are not read."""
    x = np.arange(48.0).reshape(16, 3)
    held = features(
        train_features=np.asfortranarray(x.astype(">f8")), train_labels=np.arange(16.0), test_labels=np.arange(16, dtype=np.uint8)
    )
    write(tmp_path / "f.npz", **held, other=np.array([object()]))
    found = load_features(tmp_path / "f.npz")
    assert list(found) == ["train_features", "test_features", "train_labels", "test_labels"]
    assert np.array_equal(found["train_features"], x) and found["train_features"].flags.c_contiguous
    assert {name: a.dtype.name for name, a in found.items()} == {
        "train_features": "float32", "test_features": "float32", "train_labels": "int64", "test_labels": "int64",
    }  # fmt: skip
    assert all(np.array_equal(found[name], held[name]) for name in found)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (features(test_labels=None), "no array test_labels; it has train_features, train_labels, test_features"),
        (features(train_features=np.full((16, 3), np.nan)), "not finite"),
        (features(test_features=np.full((16, 3), 1e200)), "test_features.*not finite in float32"),
        (features(train_features=np.ones(16)), r"shape \(16,\); expected"),
        (features(train_features=np.ones((16, 3), complex)), "complex128; expected numbers"),
        (features(train_features=np.array([[object()]])), "not an .npz file of arrays.*train_features"),
        (features(test_features=np.ones((16, 2))), "3 and 2 columns"),
        (features(train_labels=np.zeros(3)), "16 train features and 3 train labels"),
        (features(train_labels=np.full(16, 0.5)), "whole numbers"),
        (features(train_labels=np.full(16, np.inf)), "whole numbers"),
        (features(train_labels=np.zeros((16, 1))), r"shape \(16, 1\)"),
    ],
)
def test_features_that_do_not_fit(tmp_path, held, message):
    np.savez(tmp_path / "f.npz", **held)
    with pytest.raises(tc.CheckpointError, match=message):
        load_features(tmp_path / "f.npz")


def test_features_cut_anywhere(tmp_path):
    np.savez_compressed(tmp_path / "f.npz", **features())
    data = (tmp_path / "f.npz").read_bytes()
    for end in range(0, len(data), 7):
        (tmp_path / "f.npz").write_bytes(data[:end])
        with pytest.raises(tc.CheckpointError, match="not an .npz file"):
            load_features(tmp_path / "f.npz")


def test_features_damaged_anywhere(tmp_path, rng):
    """A changed byte raises one of our errors or, in an unread name or time, has no effect."""
    np.savez(tmp_path / "f.npz", **features())
    data = bytearray((tmp_path / "f.npz").read_bytes())
    for place in rng.choice(len(data), 300, replace=False):
        (tmp_path / "f.npz").write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        try:
            found = load_features(tmp_path / "f.npz")
        except tc.CheckpointError:
            continue
        assert all(np.array_equal(found[name], array) for name, array in features().items())


def npy(shape):
    """A .npy file that claims a shape and has eight bytes."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(8)


def test_features_that_claim_more_than_they_hold(tmp_path):
    """A file of a kilobyte needs no more memory than its size."""
    for shape, message in (("(10**9, 10**9)", "not an .npz"), ("(1000000000, 1000000000)", "8000000000000000000 bytes; the file has 8")):
        with zipfile.ZipFile(tmp_path / "f.npz", "w") as archive:
            for name in features():
                archive.writestr(f"{name}.npy", npy(shape))
        with pytest.raises(tc.CheckpointError, match=message):
            load_features(tmp_path / "f.npz")


def test_features_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_features(tmp_path / "nowhere.npz")
    with pytest.raises(IsADirectoryError):
        load_features(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(tc.CheckpointError, match="pipe"):
        load_features(tmp_path / "pipe")


# ---- reviews ---------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path):
    for name, texts in {"pos": ["Great!", "Très bien"], "neg": ["Dull."], "unsup": ["Who knows"]}.items():
        (tmp_path / name).mkdir()
        for i, text in enumerate(texts):
            (tmp_path / name / f"{i}_7.txt").write_text(text, encoding="utf-8")
    (tmp_path / "pos" / "urls.html").write_text("no review")
    return tmp_path


def test_folders_of_reviews(folders):
    texts, classes = load_reviews(folders)
    assert texts == ["Dull.", "Great!", "Très bien"] and classes.tolist() == [0, 1, 1] and classes.dtype == np.int64


def test_folders_without_reviews(tmp_path, folders):
    with pytest.raises(tc.CheckpointError, match="two or more folders.*no folders"):
        (tmp_path / "empty").mkdir()
        load_reviews(tmp_path / "empty")
    with pytest.raises(tc.CheckpointError, match=r"empty \(0 files\)"):
        load_reviews(folders)
    (tmp_path / "empty").rmdir()
    with pytest.raises(ValueError, match="CSV"):
        load_reviews(folders, source="imdb")
    (folders / "neg" / "0_7.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(tc.CheckpointError, match="0_7.txt.*not UTF-8"):
        load_reviews(folders)
    with pytest.raises(FileNotFoundError):
        load_reviews(tmp_path / "nowhere.csv")


@pytest.mark.parametrize(
    "heading, labels", [("text,label", "1,0"), ("Review,Sentiment", "positive,negative"), ("\ufefftext, label", "pos,neg")]
)
def test_csv_of_reviews(tmp_path, heading, labels):
    good, bad = labels.split(",")
    file = tmp_path / "reviews.csv"
    file.write_text(f'{heading}\n"So ""good"",\nreally",{good}\n\nBad,{bad}\n', encoding="utf-8")
    texts, classes = load_reviews(file)
    assert texts == ['So "good",\nreally', "Bad"] and classes.tolist() == [1, 0]


def test_csv_of_several_sources(tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_text("text,label,source\na,1,imdb\nb,0,rotten_tomatoes\nc,0,imdb\n")
    assert load_reviews(file)[0] == ["a", "b", "c"] and load_reviews(file, source="imdb")[0] == ["a", "c"]
    with pytest.raises(tc.CheckpointError, match="no review with source 'amazon'"):
        load_reviews(file, source="amazon")


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "no column text"),
        (b"a,b\n1,2\n", "no column text or review or sentence; its heading is a, b"),
        (b"text,stars\nx,5\n", "no column label or sentiment"),
        (b"text,label\n", "no review"),
        (b"text,label\nx\n", "line 2: 1 columns, the heading has 2"),
        (b"text,label\nx,7\n", "line 2: the label is '7'"),
        (b'text,label\n"x,1\n', "line 2: unexpected end"),
        (b"text,label\n\xff,1\n", "not UTF-8"),
        (b"text,label\n" + b"x" * 200_000 + b",1\n", "field larger"),
    ],
)
def test_csv_damaged(tmp_path, data, message):
    file = tmp_path / "reviews.csv"
    file.write_bytes(data)
    with pytest.raises(tc.CheckpointError, match=message) as error:
        load_reviews(file)
    assert str(file) in str(error.value)


# ---- words ----------------------------------------------------------------------------------------------------------------------------


def test_vocabulary_of_keras():
    """Most frequent first, ties in the reverse of alphabetical order; the two first places are taken."""
    vectorize = TextVectorization(max_tokens=6)
    vectorize.adapt(["b a c", "c, B! d"])
    assert vectorize.get_vocabulary() == ["", "[UNK]", "c", "b", "d", "a"] and vectorize.vocabulary_size() == 6
    assert vectorize(["a b z c", ""]).tolist() == [[5, 3, 1, 2], [0, 0, 0, 0]]


def test_standard_form():
    vectorize = TextVectorization(output_sequence_length=8)
    vectorize.adapt(["It's well-made;\tIT'S\nÉTÉ été"])
    assert set(vectorize.get_vocabulary()[2:]) == {"its", "wellmade", "ÉtÉ", "été"}
    assert vectorize.get_vocabulary()[2] == "its"
    plain = TextVectorization(standardize=None)
    plain.adapt(["A a!"])
    assert set(plain.get_vocabulary()[2:]) == {"A", "a!"}
    upper = TextVectorization(standardize=str.upper)
    upper.adapt(["ab cd"])
    assert set(upper.get_vocabulary()[2:]) == {"AB", "CD"}


def test_lengths():
    vectorize = TextVectorization(max_tokens=20000, output_sequence_length=600)
    vectorize.adapt(["word " * 1000])
    x = vectorize(["word " * 1000, "word other"])
    assert x.shape == (2, 600) and x.dtype == np.int64 and (x[0] == 2).all() and x[1, :3].tolist() == [2, 1, 0]
    assert vectorize("word").shape == (600,)
    assert vectorize([]).shape == (0, 600)


def test_max_tokens():
    vectorize = TextVectorization(max_tokens=20000)
    vectorize.adapt(f"w{i}" for i in range(30000))
    assert vectorize.vocabulary_size() == 20000 and vectorize(["w0 w29999"]).max() < 20000


def test_vocabulary_that_is_given():
    first = TextVectorization()
    first.adapt(["a b b"])
    second = TextVectorization()
    second.set_vocabulary(first.get_vocabulary())
    assert (second(["b a c"]) == first(["b a c"])).all()
    second.set_vocabulary(["b", "a"])
    assert second(["b a c"]).tolist() == [[2, 3, 1]]
    with pytest.raises(ValueError, match="twice"):
        second.set_vocabulary(["b", "b"])
    with pytest.raises(ValueError, match="leaves room for 1"):
        TextVectorization(max_tokens=3).set_vocabulary(["b", "a"])


def test_words_used_wrongly():
    with pytest.raises(RuntimeError, match="adapt"):
        TextVectorization()(["a"])
    with pytest.raises(TypeError, match="not one str"):
        TextVectorization().adapt("a text")
    with pytest.raises(TypeError, match="must be str, got int"):
        TextVectorization().adapt([1])
    with pytest.raises(ValueError, match="output_mode"):
        TextVectorization(output_mode="multi_hot")
    with pytest.raises(ValueError, match="standardize"):
        TextVectorization(standardize="upper")
    with pytest.raises(ValueError, match="max_tokens"):
        TextVectorization(max_tokens=2)
