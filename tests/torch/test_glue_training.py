# SPDX-License-Identifier: Apache-2.0
"""Phases over real training: what lives where, and the sums that must hold for models whose sizes are known."""

import textwrap

MIB = 1 << 20

MODEL = """
    from torch import nn
    import torch.nn.functional as F
    torch.manual_seed(0)
    def figures(name, document):
        (device,) = document["devices"]
        return next(p for p in device["phases"] if p["path"] == name)
"""

TRAIN = (
    MODEL
    + """
    model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    for step in range(4):
        with seamalloc.phase("step"):
            with seamalloc.phase("data"):
                x = torch.randn(256, 1024).cuda()
            with seamalloc.phase("forward"):
                loss = model(x).square().mean()
            with seamalloc.phase("backward"):
                loss.backward()
            with seamalloc.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            del x, loss
    document = seamalloc.stats()
    seamalloc.validate()
    result(weights=weights, allocated=torch.cuda.memory_allocated(), peak=torch.cuda.max_memory_allocated(),
           reserved_peak=torch.cuda.max_memory_reserved(),
           **{name: figures("step/" + name, document) for name in ("data", "forward", "backward", "optimizer")},
           step=figures("step", document), table=seamalloc.stats_table())
"""
)


def test_phases_of_a_training_step(run):
    done = run(TRAIN)
    activation = 256 * 1024 * 4
    forward, backward, optimizer, step = (done[name] for name in ("forward", "backward", "optimizer", "step"))
    assert all(p["count"] == 4 for p in (forward, backward, optimizer, step))
    # Each GELU keeps its input, each Linear its input: two activations a layer, the batch itself is born in "data".
    assert forward["carried_out"]["bytes"]["min"] >= 15 * activation
    assert backward["released_in"]["bytes"]["min"] >= 15 * activation, "the backward pass frees what forward made"
    assert backward["carried_out"]["bytes"]["last"] >= done["weights"], "gradients are born in the backward pass"
    assert optimizer["released_in"]["bytes"]["last"] >= done["weights"], "zero_grad frees the gradients"
    assert optimizer["allocated"]["exit"]["last"] >= 3 * done["weights"], "weights and two moments stay"
    # A parent's peak is its children's highest, never their sum.
    children = [done[name]["allocated"]["peak"]["max"] for name in ("data", "forward", "backward", "optimizer")]
    assert step["allocated"]["peak"]["max"] >= max(children)
    assert step["allocated"]["peak"]["max"] == done["peak"]
    # One phase begins where the last one ended, entry by entry; the first and the last entry show it.
    assert forward["allocated"]["exit"]["last"] == backward["allocated"]["entry"]["last"]
    assert backward["allocated"]["exit"]["last"] == optimizer["allocated"]["entry"]["last"]
    for phase in (forward, backward, optimizer, step):
        for level in ("allocated", "requested", "active", "reserved"):
            assert phase[level]["peak"]["max"] >= max(phase[level]["entry"]["max"], phase[level]["exit"]["max"])
        assert phase["highest"]["reserved"] <= done["reserved_peak"]
    assert "backward" in done["table"]


def test_decorator_window_exception_and_recursion(run):
    done = run(
        MODEL
        + """
    @seamalloc.phase("outer")
    def nest(depth):
        x = torch.ones(1 << 18, device="cuda")
        return nest(depth - 1) if depth else x.data_ptr()
    nest(2)
    try:
        with seamalloc.phase("failing"):
            raise KeyError("mine")
    except KeyError as error:
        caught = str(error)
    first, second = seamalloc.window("one"), seamalloc.window("two")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    document = seamalloc.stats()
    (device,) = document["devices"]
    phases, windows = device["phases"], device["windows"]
    result(caught=caught, paths=sorted(p["path"] for p in phases), windows=[w["name"] for w in windows],
           open=[len(p["open"]) for p in phases])
    from seamalloc import _library
    try:
        _library.load().check(_library.load().seam_phase_pop())
    except seamalloc.SeamallocError as error:
        result(pop=error.result)
    """
    )
    assert done["caught"] == "'mine'", "the program's exception is untouched"
    assert done["paths"] == ["failing", "outer", "outer/outer", "outer/outer/outer"]
    assert sorted(done["windows"]) == ["one", "two"] and not any(done["open"])
    assert done["pop"] == "SEAM_E_STATE"


DCGAN = (
    MODEL
    + """
    def down(i, o):
        return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, inplace=True)]
    def up(i, o):
        return [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
    def rounded(tensors):
        return sum((t.numel() * t.element_size() + 511) // 512 * 512 for t in tensors)
    def live():
        stats = torch.cuda.memory_stats()
        return stats["allocated_bytes.all.current"], stats["requested_bytes.all.current"]
    G = nn.Sequential(nn.ConvTranspose2d(100, 512, 4, 1, 0, bias=False), nn.BatchNorm2d(512), nn.ReLU(True),
                      *up(512, 256), *up(256, 128), *up(128, 64),
                      nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())
    D = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), *down(64, 128),
                      *down(128, 256), *down(256, 512), nn.Conv2d(512, 1, 4, 1, 0, bias=False), nn.Sigmoid())
    torch.cuda.init()
    start = live()[0]
    G.cuda()
    after_g = live()[0] - start
    G_bytes = rounded([*G.parameters(), *G.buffers()])
    D.cuda()
    D_bytes = rounded([*D.parameters(), *D.buffers()])
    noise = torch.randn(64, 100, 1, 1, device="cuda")
    after_noise = live()[0] - start
    result(after_g=after_g, G=G_bytes, after_noise=after_noise, D=D_bytes, noise=rounded([noise]))
    optD, optG = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (D, G))
    criterion = nn.BCELoss()
    table = []
    for step in range(2):
        lines = {}
        def mark(name):
            lines[name] = live()
        D.zero_grad()
        real = torch.randn(64, 3, 64, 64).cuda()
        label = torch.ones(64, device="cuda")
        mark("batch")
        output = D(real).view(-1)
        error = criterion(output, label)
        mark("forward D")
        error.backward()
        mark("backward D")
        fake = G(torch.randn(64, 100, 1, 1, device="cuda"))
        mark("forward G")
        label.fill_(0)
        output = D(fake.detach()).view(-1)
        error = criterion(output, label)
        mark("forward D fake")
        error.backward()
        mark("backward D fake")
        optD.step()
        mark("step D")
        G.zero_grad()
        label.fill_(1)
        output = D(fake).view(-1)
        error = criterion(output, label)
        mark("forward D for G")
        error.backward()
        mark("backward G")
        optG.step()
        mark("step G")
        table.append(lines)
    stats = torch.cuda.memory_stats()
    result(table=table, allocated_peak=stats["allocated_bytes.all.peak"],
           reserved_peak=stats["reserved_bytes.all.peak"])
    del output, error, fake, real
    if torch.cuda.get_allocator_backend() == "pluggable":
        seamalloc.validate()
"""
)


def test_dcgan_has_the_lines_of_the_tutorial(run):
    """Weights, noise and batch to the byte; then the same requested bytes as under PyTorch's own allocator at each
    line. It rounds more: it hands out a large block whole when less than 1 MiB would be left over."""
    ours = run(DCGAN)
    native = run("import torch\n" + textwrap.dedent(DCGAN), install=False)
    assert ours["after_g"] == ours["G"] == native["after_g"]
    assert round(ours["G"] / MIB, 1) == 13.7
    assert ours["after_noise"] == ours["G"] + ours["D"] + ours["noise"]
    assert round(ours["after_noise"] / MIB, 1) == 24.2
    for step, (mine, theirs) in enumerate(zip(ours["table"], native["table"], strict=True)):
        assert list(mine) == list(theirs)
        for line, (allocated, requested) in mine.items():
            assert requested == theirs[line][1], (step, line)
            assert requested <= allocated <= theirs[line][0], (step, line)
    first, second = ({line: pair[0] for line, pair in lines.items()} for lines in ours["table"])
    assert first["backward D"] < first["forward D"] < first["forward G"], "a backward pass frees its activations"
    assert second["backward D"] < second["forward D"]
    moments = 2 * (ours["G"] + ours["D"])
    assert abs(second["step G"] - first["step G"]) < MIB, "nothing grows from step to step"
    assert first["step G"] >= ours["G"] + ours["D"] + moments * 0.99
    assert ours["allocated_peak"] <= ours["reserved_peak"] < native["reserved_peak"]
