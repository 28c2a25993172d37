# SPDX-License-Identifier: Apache-2.0
"""Makes the parts of the simulator that follow from CUDA's headers, so that no list of names is kept by hand.

    generate.py HEADER.i TYPEDEFS OUT SOURCE...

HEADER.i  cuda.h and cudaProfiler.h, preprocessed with __CUDA_API_VERSION_INTERNAL (every name of the driver API)
TYPEDEFS  folder of cudaTypedefs.h: which CUDA version brought which form of a function
OUT       folder for names.h, names.c, stubs.c, lookup.c, names-implemented.txt, names-unsupported.txt
SOURCE    the hand-written files; what they define as SIM_API is implemented

A name that is not implemented gets a stub that counts itself and answers "not supported". A name that differs from
an implemented one only by _ptds or _ptsz gets a wrapper that puts the per-thread stream in place of stream 0.
"""
import pathlib
import re
import sys

header, typedefs, out, *sources = (pathlib.Path(arg) for arg in sys.argv[1:])

text = re.sub(r"(?m)^#.*$", "", header.read_text())
text = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", text)
prototypes = {}
for name, args in re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^()]*)\)\s*;", text):
    prototypes[name] = [] if args.strip() in ("", "void") else [" ".join(a.split()) for a in args.split(",")]
if len(prototypes) < 400:
    sys.exit(f"{header}: only {len(prototypes)} functions found; is this a preprocessed cuda.h?")

implemented = set()
for source in sources:
    implemented |= set(re.findall(r"(?m)^SIM_API\s+CUresult\s+(cu[A-Z]\w*)\(", source.read_text()))
unknown = sorted(implemented - set(prototypes))
if unknown:
    print("not in this cuda.h, left out of the lists:", *unknown, file=sys.stderr)


def base(name):
    """The documented name: no version, no stream variant."""
    return re.sub(r"_v\d+$", "", re.sub(r"_pt[ds][sz]$", "", name))


def parameter(text):
    """(type, name) of one parameter."""
    kind, name = re.fullmatch(r"(.*?[\s*])(\w+)(?:\[\])?", text).groups()
    return kind.strip(), name


def write(name, body):
    path = out / name
    if not path.exists() or path.read_text() != body:
        path.write_text(body)


out.mkdir(parents=True, exist_ok=True)
names = sorted(prototypes)
bases = sorted({base(n) for n in set(names) | implemented})
wrapped = {n: re.sub(r"_pt[ds][sz]$", "", n) for n in names
           if n not in implemented and re.sub(r"_pt[ds][sz]$", "", n) in implemented}
stubs = [n for n in names if n not in implemented and n not in wrapped]

write("names.h", "/* Generated. */\n#ifndef SIM_NAMES_H\n#define SIM_NAMES_H\nenum sim_call {\n"
      + "".join(f"    SIM_CALL_{n},\n" for n in bases)
      + "    SIM_CALL_COUNT\n};\nextern const char *const sim_call_names[SIM_CALL_COUNT];\n#endif\n")
write("names.c", '/* Generated. */\n#include "names.h"\nconst char *const sim_call_names[SIM_CALL_COUNT] = {\n'
      + "".join(f'    "{n}",\n' for n in bases) + "};\n")

body = ['/* Generated. */\n#include "sim/core/calls.h"\n#include <cudaProfiler.h>\n']
for name in stubs:
    body.append(f"SIM_API CUresult {name}({', '.join(prototypes[name]) or 'void'})\n"
                f"{{\n    return sim_unsupported(SIM_CALL_{base(name)});\n}}\n")
for name, target in sorted(wrapped.items()):
    args = [parameter(p) for p in prototypes[name]]
    passed = ", ".join(f"{n} ? {n} : CU_STREAM_PER_THREAD" if t == "CUstream" else n for t, n in args)
    body.append(f"SIM_API CUresult {name}({', '.join(prototypes[name]) or 'void'})\n"
                f"{{\n    return {target}({passed});\n}}\n")
write("stubs.c", "\n".join(body))

# PFN_<base>_v<CUDA version>[_ptds|_ptsz]: the oldest form of a function is the symbol <base>, the next <base>_v2 ...
forms = {}
for file in ("cudaTypedefs.h", "cudaProfilerTypedefs.h"):
    for name in set(re.findall(r"\bPFN_(cu\w+)\)", (typedefs / file).read_text())):
        match = re.fullmatch(r"(cu\w+?)_v(\d{4,})(_ptds|_ptsz)?", name)
        if match:
            key = match[1], match[3] or ""
            forms.setdefault(key, []).append(int(match[2]))
rows = []
for (name, suffix), versions in sorted(forms.items()):
    form = 0
    for version in sorted(versions):
        form += 1
        symbol = ""
        while form < 8 and symbol not in prototypes:
            symbol = f"{name}{suffix}" if form == 1 else f"{name}_v{form}{suffix}"
            form += symbol not in prototypes
        if symbol in prototypes:
            thread = 1 if suffix else 0
            rows.append(f'    {{"{name}", {version}, {thread}, (void *){symbol}}},\n')
write("lookup.c", '/* Generated. */\n#include "sim/libcuda/lookup.h"\n\nconst struct sim_form sim_forms[] = {\n'
      + "".join(rows) + "};\nconst unsigned sim_form_count = sizeof sim_forms / sizeof *sim_forms;\n")

write("names-implemented.txt", "".join(f"{n}\n" for n in sorted(implemented | set(wrapped))))
write("names-unsupported.txt", "".join(f"{n}\n" for n in stubs))
