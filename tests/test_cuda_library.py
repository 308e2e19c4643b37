"""Messages when the CUDA library, the driver or the device is missing: stand-ins for the library, each in its own process."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import transformer_c as tc

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))
import build_cuda  # noqa: E402

COMPILER = os.environ.get("CC", "gcc").split()

# Answers as a driver would; no memory (or the host's), no kernels.
STAND_IN = """
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda_api.h"
static const char *text(int error) { (void)error; return "something else"; }
static int versions(int *driver, int *runtime) { *driver = DRIVER; *runtime = 13000; return 0; }
static int count(int *count) { *count = DEVICES; return ERROR; }
static int selected;
static int select_device(int index) { return index < DEVICES ? (selected = index, 0) : 101; }
static int info(size_t *unused, size_t *total) { *unused = 1000; *total = 2000; return 0; }
static struct { char *start; size_t bytes; int device; } blocks[100]; /* never given back: the addresses are told apart */
static int taken;
static int allocate(void **out, size_t bytes)
{
    if (!MEMORY || taken == 100) return TC_CUDA_OUT_OF_MEMORY;
    blocks[taken].start = *out = malloc(bytes), blocks[taken].bytes = bytes, blocks[taken++].device = selected;
    return 0;
}
static int elsewhere(const void *p) /* 700 unless it is memory of the selected device */
{
    for (int i = 0; i < taken; i++)
        if ((const char *)p >= blocks[i].start && (const char *)p < blocks[i].start + blocks[i].bytes)
            return blocks[i].device == selected ? 0 : 700;
    return 700;
}
static int copy(void *to, const void *from, size_t bytes, int error) { if (!error) memcpy(to, from, bytes); return error; }
static int to_host(void *to, const void *from, size_t bytes, void *stream) { (void)stream; return copy(to, from, bytes, elsewhere(from)); }
static int on_device(void *to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    return copy(to, from, bytes, elsewhere(to) | elsewhere(from));
}
static int release(void *block) { (void)block; return 0; }
static int from_host(void *to, const void *from, size_t bytes, void *stream) { (void)stream; return copy(to, from, bytes, elsewhere(to)); }
static int host(void **out, size_t bytes) { *out = malloc(bytes); return 0; }
static int make(void **out) { static char made; *out = &made; return 0; }
static int make_stream(void **out, int apart) { (void)apart; return make(out); }
static int order(void *a, void *b) { (void)a, (void)b; return 0; }
static int synchronize(void *stream_or_event) { (void)stream_or_event; return 0; }
static int wait_for_all(void) { return 0; }
static const tc_cuda_kernel_table *kernels(tc_dtype storage) { static const tc_cuda_kernel_table none; (void)storage; return &none; }
static const int code_for[] = {75, 80, 0};
static int shared(int *out, int index) { (void)index; *out = 166912; return 0; }
static int capability(int *out, int index) { *out = index == 0 ? CAPABILITY : 80; return 0; }
static int cores(int *out, int index) { (void)index; *out = 80; return 0; }
static int current(int *index) { *index = selected; return 0; }
static const tc_cuda_api api = {ABI, 0, ROWS, text, versions, code_for, count, capability, cores, shared, current, select_device, info,
                                .allocate = allocate, .release = release, .copy_from_host = from_host, .copy_to_host = to_host, .copy_on_device = on_device,
                                .allocate_host = host, .create_stream = make_stream, .create_event = make, .record_event = order,
                                .wait_event = order, .query_event = synchronize, .synchronize_event = synchronize,
                                .synchronize = synchronize, .synchronize_device = wait_for_all, .kernels = kernels};
const tc_cuda_api *tc_cuda_get_api(void) { return &api; }
"""


@pytest.fixture
def stand_in(tmp_path):
    if not shutil.which(COMPILER[-1]):
        pytest.skip(f"{COMPILER[-1]} is not installed")

    def make(**answers):
        answers = {
            "DRIVER": 13000,
            "DEVICES": 1,
            "ERROR": 0,
            "ABI": "TC_CUDA_ABI_VERSION",
            "ROWS": "tc_kernel_rows",
            "MEMORY": 0,
            "CAPABILITY": 80,
            **answers,
        }
        source, library = tmp_path / "stand_in.c", tmp_path / "stand_in.so"
        source.write_text(STAND_IN)
        flags = [*build_cuda.sources_options(), *(f"-D{name}={value}" for name, value in answers.items())]
        subprocess.run([*COMPILER, "-shared", "-fPIC", *flags, f"-I{ROOT / 'csrc'}", "-o", library, source], check=True)
        return library

    return make


def ask(library, code):
    """The output of `code` in a process with this CUDA library."""
    environment = {**os.environ, "TRANSFORMER_C_CUDA_LIBRARY": str(library), "PYTHONPATH": str(pathlib.Path(tc.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def error_of(library, call):
    code = f"import transformer_c as tc\ntry:\n    {call}\nexcept Exception as error:\n    print(type(error).__name__, error)"
    return ask(library, code)


@pytest.mark.parametrize(
    "answers, words",
    [
        ({"DRIVER": 0, "ERROR": 35, "DEVICES": 0}, "no NVIDIA driver is installed; install one for CUDA 13.0"),
        ({"DRIVER": 12020, "ERROR": 35, "DEVICES": 0}, "the NVIDIA driver is too old, it is for CUDA 12.2 and 13.0 is needed"),
        ({"ERROR": 100, "DEVICES": 0}, "the driver sees no GPU; look at nvidia-smi and at CUDA_VISIBLE_DEVICES"),
        ({"DEVICES": 0}, "the driver sees no GPU"),
        ({"ERROR": 999}, "something else"),
        (
            {"ABI": 1},
            'was built from other sources than this; build it with "make cuda" in the sources or "TRANSFORMER_C_CUDA=1 pip install ."',
        ),
        (
            {"ROWS": '"of another kernels.def"'},
            'was built from other sources than this; build it with "make cuda" in the sources or "TRANSFORMER_C_CUDA=1 pip install ."',
        ),
        ({"TC_KERNEL_HEADERS": "0"}, "was built from other sources than this"),
        ({"TC_KERNEL_CODE": "0"}, "was built from other sources than this"),
        ({"CAPABILITY": 61}, "GPU 0 has compute capability 6.1, and the CUDA library has code for 7.5, 8.0 and later"),
    ],
    ids=[
        "no driver",
        "old driver",
        "no GPU",
        "none of them",
        "another error",
        "another build",
        "other kernels",
        "other headers",
        "other code",
        "no code",
    ],
)
def test_what_is_missing_is_named(stand_in, answers, words):
    library = stand_in(**answers)
    said = error_of(library, 'tc.zeros(2, device="cuda")')
    assert said.startswith("RuntimeError CUDA is not available: ") and words in said
    code = "import transformer_c as tc; print(tc.cuda.is_available(), tc.cuda.device_count(), tc.cuda.status())"
    assert ask(library, code).startswith("False 0 not available: ") and words in ask(library, code)


def test_a_library_that_is_not_there(tmp_path):
    said = error_of(tmp_path / "none.so", 'tc.tensor([1.0]).to("cuda")')
    assert said.startswith("RuntimeError CUDA is not available") and "none.so" in said and "make cuda" in said
    assert "(named by TRANSFORMER_C_CUDA_LIBRARY)" in said


def test_a_library_that_is_cut_short(stand_in):
    """A copy that stopped at any point: dlopen would read beyond the end of the file and end the process."""
    library = stand_in()
    whole = library.read_bytes()
    for size in (0, 10, 64, 4096, len(whole) // 2, len(whole) - 1):
        library.write_bytes(whole[:size])
        said = error_of(library, 'tc.zeros(1, device="cuda")')
        assert said.startswith("RuntimeError CUDA is not available") and "make cuda" in said, (size, said)
        assert size < 64 or "stand_in.so (named by TRANSFORMER_C_CUDA_LIBRARY) is incomplete" in said


FORK = """
import os, transformer_c as tc
assert tc.cuda.is_available()
if (child := os.fork()) == 0:
    print(tc.cuda.is_available(), tc.cuda.device_count(), tc.cuda.status(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_process_says_that_it_has_no_gpu(stand_in):
    said = ask(stand_in(), FORK)
    assert said.startswith("False 0 not available: CUDA cannot be used in a process forked from one that used it")


PLACES = ["x.to(1)", "x.to(1, 'float32')", "x.to('cuda:1', non_blocking=True)", "x.cuda(1)", "x.cuda('cuda:1', non_blocking=True)", "tc.empty(2, device=1)",
          "layer.to(1)", "layer.to('cuda:1', non_blocking=True)", "layer.to(tc.device(1), tc.float32, True)", "layer.cuda(1)", "layer.cuda('cuda:1')"]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_gpu_is_named_or_numbered(stand_in, place):
    code = f"import transformer_c as tc\nx, layer = tc.zeros(0), tc.nn.Module()\nlayer.register_buffer('b', x)\ny = {place}\nprint(getattr(y, 'b', y).device)"
    assert ask(stand_in(DEVICES=2, MEMORY=1), code) == "cuda:1"


def test_info_lists_gpus_and_what_the_library_is_for(stand_in):
    code = "import transformer_c as tc; tc.show_config()"
    lines = ask(stand_in(DEVICES=2, CAPABILITY=61), code).splitlines()
    said = [re.split(r": +", line, maxsplit=1) for line in lines[-4:]]
    assert said == [
        ["CUDA", "available"],
        ["cuda:0", "compute capability 6.1, 80 multiprocessors"],
        ["cuda:1", "compute capability 8.0, 80 multiprocessors"],
        ["CUDA library", "for compute capability 7.5, 8.0 and later"],
    ]
    without = ask(stand_in(DEVICES=0, ERROR=100), code).splitlines()
    assert "the driver sees no GPU" in without[-2] and re.fullmatch("CUDA library: +for compute capability 7.5, 8.0 and later", without[-1])


def test_what_is_no_gpu():
    x = tc.zeros(2)
    for wrong in ("cpu", -1, "gpu"):
        with pytest.raises(ValueError, match=f'device {wrong!r} is (unknown|not a GPU); expected .*"cuda:<ordinal>"'):
            x.cuda(wrong)


def test_a_generator_of_a_device_is_that_of_the_cpu():
    """PyTorch's programs name one; here a sequence does not depend on it."""
    for device in ("cuda", "cuda:1", tc.device("cpu"), 0, None):
        assert (
            tc.randint(100, (4,), generator=tc.Generator(device=device).manual_seed(1)).tolist()
            == tc.randint(100, (4,), rng=tc.Generator(1)).tolist()
        )
    with pytest.raises(ValueError, match="device 'gpu' is unknown"):
        tc.Generator(device="gpu")


@pytest.mark.parametrize("name", ["CUDAGraph", "Stream", "memory_allocated", "set_device"])
def test_names_of_torch_cuda_say_what_to_use(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; use "):
        getattr(tc.cuda, name)


# ---- the build ------------------------------------------------------------------------------------------------------------------------


def compiler(folder, release):
    """A program that answers as nvcc of this release does, and compiles to its own text; on the way to an object to those of sm_80 and, when asked, of
    sm_75, by the names that nvcc gives them."""
    program = folder / f"nvcc-{release}"
    program.write_text(f"""#!/bin/sh
[ "$1" = --version ] && {{ echo "Cuda compilation tools, release {release}, V{release}.1"; exit; }}
case "$*" in *sm_75*) both=1 ;; *) both= ;; esac
while [ "$1" != --keep-dir ]; do source=$name name=$1; shift; done
name=$(basename "$source" .cu)
[ -z "$both" ] || echo sm_75 >"$2/$name.compute_75.cubin"
echo sm_80 >"$2/$name.${{both:+compute_80.}}sm_80.cubin"
while [ "$1" != -o ]; do shift; done
echo {release} >"$2"
""")
    program.chmod(0o755)
    return str(program)


def test_objects_are_of_one_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(build_cuda, "OBJECTS", tmp_path)
    source = build_cuda.sources()[0]
    made = [build_cuda.compile_object(compiler(tmp_path, release), source, ["sm_80"]) for release in ("13.0", "13.1", "13.0")]
    assert made[0] == made[2] != made[1] and [path.read_text().strip() for path in made] == ["13.0", "13.1", "13.0"]


@pytest.mark.parametrize(
    "name, kernels",
    [
        ("gemm.h", ["gemm.cu", "gemm_float.cu"]),
        ("cuda/mma.cuh", ["attention_mma.cu"]),
        ("unary.def", ["elementwise.cu"]),
        ("cuda/copy.cu", ["copy.cu"]),
    ],
)
def test_a_changed_header_compiles_what_includes_it(tmp_path, monkeypatch, name, kernels):
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    monkeypatch.setattr(build_cuda, "KERNELS", tmp_path / "csrc" / "kernels")
    nvcc = compiler(tmp_path, "13.0")

    def names():
        return {source.name: build_cuda.command_of(nvcc, source, ["sm_80"], "-c")[1] for source in build_cuda.sources()}

    def change(name):
        before = names()
        with open(tmp_path / "csrc" / "kernels" / name, "a") as file:
            file.write("/* changed */\n")
        return {source for source, object in names().items() if object != before[source]} - {"table.cu"}

    changed = change(name)
    assert changed >= {*kernels} and "layer_norm.cu" not in changed
    assert change("kernels.def") >= changed | {"layer_norm.cu"}, "what a file declares must still be what it defines"


@pytest.mark.parametrize("targets", [["sm_80"], ["sm_75", "sm_80"]])
def test_machine_code_of_an_object_is_not_compiled_again(tmp_path, monkeypatch, targets):
    monkeypatch.setattr(build_cuda, "OBJECTS", tmp_path / "objects")
    source, nvcc = build_cuda.sources()[0], compiler(tmp_path, "13.0")
    build_cuda.compile_object(nvcc, source, targets)
    made = [build_cuda.compile_object(nvcc, source, [target], "-cubin") for target in (*targets, "sm_90")]
    assert [path.read_text().strip() for path in made] == [*targets, "13.0"]
    assert {path.suffix for path in (tmp_path / "objects").iterdir()} == {".o", ".txt", ".lock"}, "what else was made on the way is removed"


def test_what_a_library_is_compared_by(tmp_path, monkeypatch):
    """A header that the core reads too, or a kernel's code: the libraries of before are of other sources."""
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    monkeypatch.setattr(build_cuda, "KERNELS", tmp_path / "csrc" / "kernels")
    found = [build_cuda.sources_options()]
    for name in ("transformer_c.h", "kernels/attention.h", "kernels/kernels.def", "kernels/cuda/gemm.cu", "kernels/cuda/device.cuh"):
        with open(tmp_path / "csrc" / name, "a") as file:
            file.write("/* changed */\n")
        found.append(build_cuda.sources_options())
    headers, code = zip(*found, strict=True)
    assert len({*headers}) == 4 and headers[3] == headers[-1] and len({*code}) == 3 and code[0] == code[3]


def test_a_compiler_that_is_too_old(tmp_path, monkeypatch):
    monkeypatch.setenv("NVCC", compiler(tmp_path, "12.4"))
    with pytest.raises(SystemExit, match=r"nvcc-12\.4 is of CUDA 12\.4, and 13 is needed: install"):
        build_cuda.build(tmp_path, ["sm_80"], 1)


def test_each_target_has_code_of_its_own():
    """One for the instructions of a single GPU (sm_90a) would repeat what there is, until a kernel uses these."""
    kernels = "".join(path.read_text() for path in (ROOT / "csrc" / "kernels" / "cuda").iterdir())
    special = [name for name in build_cuda.TARGETS if not name[3:].isdigit()]
    assert all(f"__CUDA_ARCH_FEAT_{name[:5].upper()}" in kernels for name in special)
    assert len({*build_cuda.TARGETS}) == len(build_cuda.TARGETS)


def test_quick_objects_are_not_those_of_a_build(tmp_path, monkeypatch):
    monkeypatch.setattr(build_cuda, "OBJECTS", tmp_path / "objects")
    source, nvcc = build_cuda.sources()[0], compiler(tmp_path, "13.0")
    commands = [build_cuda.command_of(nvcc, source, ["sm_80"], "-c", quick=quick)[0] for quick in (False, True)]
    assert [word for word in commands[1] if word not in commands[0]] == build_cuda.QUICK
    made = [build_cuda.compile_object(nvcc, source, ["sm_80"], output, quick) for output in ("-c", "-cubin") for quick in (False, True)]
    assert len({*made}) == 4 and [path.read_text().strip() for path in made] == ["13.0", "13.0", "sm_80", "sm_80"]


def test_what_nvcc_refuses_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(build_cuda, "OBJECTS", tmp_path / "objects")
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        """#!/bin/sh
[ "$1" = --version ] && { echo "release 13.0"; exit; }
case "$*" in *loss.cu*) echo "loss.cu(7): error" >&2; exit 1;; esac
echo "$@" >>"$(dirname "$0")/calls"
for last; do :; done
touch "$last"
"""
    )
    nvcc.chmod(0o755)
    monkeypatch.setenv("NVCC", str(nvcc))
    with pytest.raises(SystemExit, match=r"nvcc failed on loss\.cu:\nloss\.cu\(7\): error"):
        build_cuda.build(tmp_path, ["sm_75"], 1, quick=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls and all("arch=compute_75,code=sm_75" in call and "-Ofc=max" in call for call in calls)


def test_slow_code_does_not_replace_the_packages(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["build_cuda.py", "--quick"])
    with pytest.raises(SystemExit):
        build_cuda.main()
    assert "--quick makes slow code: name another directory than the package's by --output" in capsys.readouterr().err


def test_targets_that_name_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("NVCC", compiler(tmp_path, "13.0"))
    with pytest.raises(SystemExit, match="names no GPU"):
        build_cuda.build(tmp_path, [""], 1)


def test_a_device_that_is_not_there(stand_in):
    library = stand_in(DEVICES=2)
    assert ask(library, "import transformer_c as tc; print(tc.cuda.is_available(), tc.cuda.device_count())") == "True 2"
    said = error_of(library, 'tc.zeros(2, device="cuda:2")')
    assert said == 'RuntimeError device "cuda:2" does not exist: there are 2 GPUs, cuda:0 to cuda:1'
    assert "in tests only" in error_of(library, 'tc.zeros(2, device="cuda:emulated")')


def test_an_old_gpu_beside_a_new_one(stand_in):
    library = stand_in(DEVICES=2, CAPABILITY=61, MEMORY=1)
    assert ask(library, "import transformer_c as tc; print(tc.cuda.is_available(), tc.cuda.device_count())") == "True 2"
    said = error_of(library, 'tc.empty(2, device="cuda:0")')
    assert said.startswith("RuntimeError CUDA is not available: GPU 0 has compute capability 6.1")
    assert ask(library, 'import transformer_c as tc; print(tc.empty(2, device="cuda:1").device)') == "cuda:1"


def test_memory_that_is_not_there(stand_in):
    said = error_of(stand_in(), 'tc.zeros(100, device="cuda")')
    assert said.startswith("MemoryError out of memory on cuda:0: 400 bytes were asked for, 1000 of its 2000 are free")
    assert "smaller batches" in said


def test_a_kernel_that_is_not_there(stand_in):
    said = error_of(stand_in(MEMORY=1), 'tc.zeros(2, device="cuda")')
    assert said == 'NotImplementedError copy of float32 has no CUDA kernel yet (device "cuda:0"); move its Tensors to the CPU with .cpu()'


def test_a_copy_from_a_gpu_to_another(stand_in):
    code = (
        'import numpy as np, transformer_c as tc; x = tc.tensor(np.arange(6.0), device="cuda:0"); y = x.to("cuda:1"); z = y.to("cuda:0"); '
        "print(x.device, y.device, z.device, y.cpu().tolist() == z.cpu().tolist() == x.cpu().tolist() == list(range(6)))"
    )
    assert ask(stand_in(MEMORY=1, DEVICES=2), code) == "cuda:0 cuda:1 cuda:0 True"
