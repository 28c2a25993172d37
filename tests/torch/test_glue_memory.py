# SPDX-License-Identifier: Apache-2.0
"""Out of memory, limits, and giving memory back: what the program sees, compared with what the device saw."""

import pytest

MIB = 1 << 20


def test_out_of_memory_is_pytorchs_exception_and_all_goes_on(run):
    done = run("""
        def attempt(count):
            try:
                return torch.empty(count, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                return str(error)
        kept = attempt(1536 * MIB)
        too_much, absurd, gigantic = attempt(1024 * MIB), attempt(1 << 50), attempt(1 << 61)
        stats = torch.cuda.memory_stats()
        result(too_much=too_much, absurd=absurd, gigantic=gigantic, ooms=stats["num_ooms"],
               allocated=stats["allocated_bytes.all.current"])
        seamalloc.validate()
        del kept
        again = attempt(1024 * MIB)
        again.zero_()
        result(again=again.numel(), address=again.data_ptr(), native=seamalloc.native_part())
        seamalloc.validate()
    """)
    assert done["native"].endswith(".so")
    for name in ("too_much", "absurd", "gigantic"):
        assert done[name].startswith("CUDA out of memory. Tried to allocate"), done[name]
    assert "1.00 GiB" in done["too_much"] and "more than 1EB memory" in done["gigantic"]
    assert done["ooms"] == 2, "what no address space holds is refused before anything is tried, as by PyTorch"
    assert done["allocated"] == 1536 * MIB, "a failed request changes nothing"
    assert done["again"] == 1024 * MIB and done["address"] != 0


def test_out_of_memory_in_a_backward_pass_and_an_allocation_after_it(run):
    done = run("""
        caught = None
        class Greedy(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1
            @staticmethod
            def backward(ctx, gradient):
                torch.empty(4096 * MIB, dtype=torch.uint8, device="cuda")  # on autograd's thread
                return gradient
        x = torch.ones(8, device="cuda", requires_grad=True)
        try:
            Greedy.apply(x).sum().backward()
        except torch.OutOfMemoryError as error:
            caught = str(error)
        y = torch.ones(1 << 20, device="cuda")
        result(caught=caught, address=y.data_ptr())
    """)
    assert "out of memory" in done["caught"] and done["address"] != 0


def test_without_the_native_part_it_is_a_runtime_error(run):
    done = run(
        """
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        except RuntimeError as error:
            result(kind=type(error).__name__, text=str(error), native=seamalloc.native_part())
        result(after=torch.ones(8, device="cuda").data_ptr())
        """,
        SEAMALLOC_NATIVE="0",
    )
    assert done["kind"] == "RuntimeError" and "CUDA out of memory" in done["text"]
    assert "SEAMALLOC_NATIVE=0" in done["native"] and done["after"] != 0


def test_a_broken_native_part_is_removed_and_made_again(run, tmp_path):
    program = "result(native=seamalloc.native_part())"
    cache = tmp_path / "cache"
    first = run(program, SEAMALLOC_CACHE=str(cache))
    (file,) = cache.glob("*.so")
    assert first["native"] == str(file)
    good = file.read_bytes()
    file.write_text("not a library")
    second = run(program, SEAMALLOC_CACHE=str(cache))
    assert second["native"] == str(file) and file.read_bytes()[:4] == good[:4] == b"\x7fELF"
    assert list(cache.iterdir()) == [file], "nothing is left lying about"


def test_no_compiler_is_a_warning(run, tmp_path):
    done = run(
        "result(native=seamalloc.native_part(), address=torch.ones(8, device='cuda').data_ptr())",
        SEAMALLOC_CACHE=str(tmp_path / "empty"),
        CXX="/no/such/compiler",
        PATH="/no/such/folder",
    )
    assert "absent" in done["native"] and "compiler" in done["native"] and done["address"] != 0
    assert "SeamallocWarning" in done.stderr and "RuntimeError" in done.stderr


def test_other_failures_are_no_out_of_memory(run):
    """The device number is the caller's mistake; PyTorch itself never passes one like it."""
    done = run("""
        import ctypes
        torch.ones(1, device="cuda")
        from seamalloc import _library
        library = _library.load()
        library.seam_malloc.restype = ctypes.c_void_p
        library.seam_malloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        result(block=library.seam_malloc(512, 99, None), text=seamalloc.last_error())
    """)
    assert done["block"] is None and "99" in done["text"]


def test_memory_fraction(run):
    done = run("""
        before = torch.cuda.get_per_process_memory_fraction()
        torch.cuda.set_per_process_memory_fraction(0.25)
        fraction = torch.cuda.get_per_process_memory_fraction()
        kept = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            text = str(error)
        refused = []
        for bad in (-0.5, 1.5, 1):
            try:
                torch.cuda.set_per_process_memory_fraction(bad)
            except (ValueError, TypeError) as error:
                refused.append(type(error).__name__)
        kept_fraction = torch.cuda.get_per_process_memory_fraction()
        torch.cuda.set_per_process_memory_fraction(1.0)
        more = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        result(before=before, fraction=fraction, text=text, refused=refused, kept=kept_fraction,
               address=more.data_ptr())
    """)
    assert done["before"] == 1.0 and done["fraction"] == 0.25 == done["kept"]
    assert done["refused"] == ["ValueError", "ValueError", "TypeError"]
    assert "out of memory" in done["text"] and "limit" in done["text"]
    assert done["address"] != 0


def test_empty_cache_gives_memory_back_to_the_device(run):
    done = run("""
        blocks = [torch.empty(32 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
        used = torch.cuda.mem_get_info()
        del blocks
        held = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        result(used=used, held=held, reserved=torch.cuda.memory_reserved(), after=torch.cuda.mem_get_info(),
               allocated=torch.cuda.memory_allocated())
        blocks = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda").zero_()
        torch.accelerator.empty_cache()
        result(again=torch.cuda.memory_reserved())
    """)
    assert done["held"] >= 256 * MIB and done["allocated"] == 0
    assert done["reserved"] == 0
    assert done["after"][0] - done["used"][0] == done["held"], "the device has back what was held"
    assert done["again"] >= 256 * MIB
    assert done.record["calls"].get("cuMemRelease", 0) > 0
    assert not done.record["violations"], done.record["violations"]


def test_reserved_is_what_the_device_gave(run):
    done = run("""
        torch.zeros(1, device="cuda")
        others = torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
        sizes = [100, 5000, 700_000, 3 * MIB, 17 * MIB, 40 * MIB, 1 << 20, 90 * MIB]
        blocks = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
        free, total = torch.cuda.mem_get_info()
        result(others=others, used=total - free, reserved=torch.cuda.memory_reserved(),
               peak=torch.cuda.max_memory_reserved())
    """)
    assert done["used"] - done["others"] == done["reserved"] == done["peak"]
    assert done.record["physical_peak_bytes"] == done["peak"] + done["others"]


def test_size_zero_and_foreign_pointers(run):
    done = run("""
        import ctypes
        from seamalloc import _library
        library = _library.load()
        empty = torch.empty(0, device="cuda")
        result(empty=empty.data_ptr(), allocations=torch.cuda.memory_stats()["allocation.all.allocated"])
        empty.record_stream(torch.cuda.Stream())
        other = ctypes.create_string_buffer(64)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        def declare(function, result, *arguments):
            function.restype, function.argtypes = result, arguments
        declare(library.seam_torch_free, None, pointer, size, ctypes.c_int, pointer)
        declare(library.seam_torch_record_stream, None, pointer, pointer)
        declare(library.seam_torch_base_alloc, pointer, pointer, ctypes.POINTER(size))
        x = torch.ones(1000, device="cuda")
        for address in (None, ctypes.addressof(other), 8, x.data_ptr() + 512, 2**64 - 1):
            library.seam_torch_free(address, 12345, 77, None)
        for address in (None, ctypes.addressof(other), 8):
            library.seam_torch_record_stream(address, None)
        length = size(1)
        base = library.seam_torch_base_alloc(x.data_ptr() + 100, ctypes.byref(length))
        found = (base == x.data_ptr(), length.value)
        base = library.seam_torch_base_alloc(ctypes.addressof(other), ctypes.byref(length))
        foreign = (base == ctypes.addressof(other), length.value)
        library.seam_torch_base_alloc(x.data_ptr(), None)
        # Size, device and stream of a free are another block's: only the pointer counts.
        y = torch.cuda.caching_allocator_alloc(4 * MIB)
        before = torch.cuda.memory_allocated()
        library.seam_torch_free(y, 1, 5, 0xdead)
        result(found=found, foreign=foreign, freed=before - torch.cuda.memory_allocated(), sum=float(x.sum()))
        seamalloc.validate()
    """)
    assert done["empty"] == 0 and done["allocations"] == 0
    assert done["found"] == [True, 4096] and done["foreign"] == [True, 0]
    assert done["freed"] == 4 * MIB


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve"])
def test_a_driver_call_that_fails_once_is_survived(run, call):
    """The first of its kind fails: the request is served all the same, or refused with a text, and nothing is lost."""
    done = run(
        """
        served = refused = 0
        for size in (4 * MIB, 4 * MIB, 64 * MIB, 64 * MIB):
            try:
                x = torch.empty(size, dtype=torch.uint8, device="cuda").zero_()
                served += 1
            except RuntimeError as error:
                refused += 1
                text = str(error)
                assert "allocate" in text, text
            seamalloc.validate()
        x = None
        torch.cuda.empty_cache()
        result(served=served, refused=refused, reserved=torch.cuda.memory_reserved())
        """,
        SEAMALLOC_SIM_FAIL=f"{call}:1",
    )
    assert done["served"] >= 3 and done["served"] + done["refused"] == 4
    assert done["reserved"] == 0
    assert not done.record["violations"], done.record["violations"]
