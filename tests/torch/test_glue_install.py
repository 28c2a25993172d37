# SPDX-License-Identifier: Apache-2.0
"""install(): in time, once, with good options, and a clear error for everything else."""

import pytest

REFUSED = """
    import torch, seamalloc
    {before}
    try:
        seamalloc.install({arguments})
    except Exception as error:
        result(kind=type(error).__name__, value_error=isinstance(error, ValueError), text=str(error))
    else:
        result(kind=None, value_error=False, text="")
    result(installed=seamalloc.installed(), works=torch.ones(4, device="cuda").data_ptr() != 0,
           backend=torch.cuda.memory.get_allocator_backend())
"""


def refuse(run, before="", arguments="", **environment):
    return run(REFUSED.format(before=before, arguments=arguments), install=False, **environment)


def test_install_twice_and_hooks_are_set(run):
    done = run("""
        seamalloc.install()
        initialised = torch.cuda.is_initialized()
        try:
            seamalloc.install(max_split_size_mb=64)
        except seamalloc.SeamallocError as error:
            text = str(error)
        x = torch.ones(1 << 20, device="cuda")
        result(initialised=initialised, text=text, backend=torch.cuda.memory.get_allocator_backend(),
               allocated=torch.cuda.memory_allocated(), sum=float(x.sum()))
    """)
    assert done["initialised"] is False, "install must not initialise CUDA"
    assert "installed already" in done["text"] and "max_split_size_mb:64" in done["text"]
    assert done["backend"] == "pluggable"
    assert done["allocated"] >= 4 << 20


@pytest.mark.parametrize("before", ["torch.cuda.init()", "torch.ones(1, device='cuda')"])
def test_too_late(run, before):
    done = refuse(run, before)
    assert done["kind"] == "SeamallocError"
    assert "already initialised" in done["text"] and "before the first use" in done["text"]
    assert not done["installed"] and done["works"] and done["backend"] == "native"


def test_another_allocator_is_there(run):
    done = refuse(
        run,
        """
    import ctypes
    from seamalloc import _library
    other = torch.cuda.memory.CUDAPluggableAllocator(str(_library.find()), "seam_torch_alloc", "seam_torch_free")
    torch.cuda.memory.change_current_allocator(other)
        """,
    )
    assert done["kind"] == "SeamallocError" and "changed, before" in done["text"]
    assert not done["installed"]


@pytest.mark.parametrize("variable", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_backend_key(run, variable):
    done = refuse(run, **{variable: "max_split_size_mb:64,backend:native"})
    assert done["kind"] == "OptionError" and done["value_error"]
    assert variable in done["text"] and "backend:native" in done["text"] and "remove" in done["text"]
    assert not done["installed"] and done["works"], "after a refusal PyTorch's own allocator serves"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("no_such_key=1", "no_such_key"),
        ("max_split_size_mb=3", "max_split_size_mb"),
        ("policy='no_such_policy'", "no_such_policy"),
        ("policy='/no/such/file.conf'", "/no/such/file.conf"),
    ],
)
def test_bad_option(run, arguments, named):
    done = refuse(run, arguments=arguments)
    assert done["kind"] in ("OptionError", "SeamallocError") and named in done["text"]
    assert not done["installed"] and done["works"] and done["backend"] == "native"


def test_bad_variable(run):
    done = run(
        """
        import torch, seamalloc
        try:
            seamalloc.install()
            torch.ones(1, device="cuda")
        except RuntimeError as error:
            result(text=str(error))
        """,
        install=False,
        SEAMALLOC_CONF="handle_mib:nonsense",
    )
    assert "SEAMALLOC_CONF" in done["text"] and "handle_mib" in done["text"]


def test_options_and_policy_file_are_in_force(run):
    (run.folder / "mine.conf").write_text("max_split_size_mb:100\nhandle_mib:64\n")
    done = run(
        """
        import torch, seamalloc
        seamalloc.install("mine.conf", roundup_power2_divisions=4)
        x = torch.empty(1200, dtype=torch.uint8, device="cuda")
        stats = torch.cuda.memory_stats()
        result(settings=seamalloc.settings(), split=stats["max_split_size"],
               allocated=stats["allocated_bytes.all.current"])
        """,
        install=False,
    )
    pairs = dict(pair.partition(":")[::2] for pair in done["settings"].split(",") if ":" in pair)
    assert pairs["max_split_size_mb"] == "100" and pairs["handle_mib"] == "64"
    assert done["split"] == 100 << 20
    assert done["allocated"] == 1536, "1,200 bytes in steps of 512"


def test_no_cuda_build(run):
    done = run(
        """
        import torch
        torch.version.cuda = None
        import seamalloc
        try:
            seamalloc.install()
        except seamalloc.SeamallocError as error:
            result(text=str(error))
        """,
        install=False,
    )
    assert "without CUDA" in done["text"]


def test_library_is_missing(run):
    done = refuse(run, SEAMALLOC_LIBRARY="/no/such/library.so")
    assert done["kind"] == "LibraryNotFoundError" and "/no/such/library.so" in done["text"]
    assert not done["installed"] and done["works"]


def test_without_install_nothing_is_measured(run):
    done = run(
        """
        import torch, seamalloc
        with seamalloc.phase("a"), seamalloc.window("b"):
            torch.ones(4, device="cuda")
        seamalloc.reset_peaks()
        seamalloc.trim()
        bad = []
        for name in ("", "a/b", "x" * 64):
            try:
                seamalloc.phase(name)
            except ValueError:
                bad.append(name)
        result(stats=seamalloc.stats(), memory=seamalloc.memory_stats(), table=seamalloc.stats_table(), bad=len(bad))
        """,
        install=False,
    )
    assert done["stats"] is None and done["memory"] is None
    assert done["table"].startswith("unavailable") and "not installed" in done["table"]
    assert done["bad"] == 3, "a bad name shows under every allocator"


def test_before_cuda_is_used_figures_are_unavailable(run):
    done = run("""
        result(stats=seamalloc.stats(), table=seamalloc.stats_table(), torch=dict(torch.cuda.memory_stats()))
        torch.ones(4, device="cuda")
        result(then=seamalloc.stats() is not None)
    """)
    assert done["stats"] is None and "unavailable" in done["table"] and done["torch"] == {}
    assert done["then"]
