# SPDX-License-Identifier: Apache-2.0
"""test_traces.py COMMAND: convert and replay of the `seamalloc` command on small traces of each form: what converts
there and back is the same, what is wrong is named by its line or byte, and a replay is what was recorded."""

import json
import pickle
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

COMMAND = ""
GIB = 1 << 30

# Two threads, three streams, two devices, a pool, a failure, phases; addresses come back at once.
THREADED = f"""\
+ load
a 1 1048576 0
f 1 0 1
a 2 1048576 0
f 2 0
-
b 5 1
a 3 3000000 7 1 2
x {100 * GIB} 9 1 2 0
e 5 1
a 4 600 9 1 0
r 4 7
p step
f 3 7 2
d 5 1
t 1
f 4 9
t
"""
RMM = """\
Thread,Time,Action,Pointer,Size,Stream,Tag
101,10:00:00.000001,allocate,0x7f0000000000,1048576,0x0,a
102,10:00:00.000002,allocate,0x7f0000100000,4096,0x7f55,b
103,10:00:00.000003,allocate,0x7f0000000000,2048,0x9,c
102,10:00:00.000004,free,0x7f0000000000,1048576,0x0,d
103,10:00:00.000005,allocate failure,(nil),109951162777600,0x9,e
101,10:00:00.000006,free,0x7f0000000000,2048,0x9,f
102,10:00:00.000007,free,0x7f0000100000,4096,0x7f55,g
"""
RMM_AS_TEXT = """\
a 1 1048576 0
a 2 4096 1 0 1
a 3 2048 2 0 2
f 1 0 1
x 109951162777600 2 0 2
f 3 2
f 2 1 1
"""


class Traces(unittest.TestCase):
    def setUp(self) -> None:
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name)
        self.addCleanup(self.scratch.cleanup)

    def file(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def call(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def text_of(self, path: str) -> str:
        return self.call("convert", path, "-").stdout

    def through(self, text: str, *names: str) -> str:
        """The text after it went through files of these names."""
        path = self.file("first.txt", text)
        for name in names:
            self.call("convert", path, str(self.folder / name))
            path = str(self.folder / name)
        return self.text_of(path)

    def row(self, path: str, *options: str) -> dict[str, object]:
        rows = json.loads(self.call("replay", "--json", *options, path).stdout)
        return {key: value for key, value in rows[0].items() if key not in ("trace", "host_ns_per_op")}

    # ---- there and back ----

    def test_text_comes_back_from_a_recording(self) -> None:
        self.assertEqual(self.through(THREADED, "a.seamtrace"), THREADED)
        self.assertEqual(self.through(THREADED, "a.seamtrace", "b.txt", "c.seamtrace"), THREADED)

    def test_snapshot(self) -> None:
        back = self.through(THREADED, "a.pickle")
        kept = [line for line in THREADED.splitlines() if line[0] in "afx"]
        # Blocks and streams are numbered anew, threads are not told; sizes, order and devices stay.
        self.assertEqual([line[0] for line in back.splitlines()], [line[0] for line in kept])
        self.assertIn(f"x {100 * GIB} 2 1 0", back)
        self.assertEqual(self.through(THREADED, "a.pickle", "b.pickle"), back)
        snapshot = pickle.loads((self.folder / "a.pickle").read_bytes())
        self.assertEqual(len(snapshot["device_traces"]), 2)
        for segment in snapshot["segments"]:
            self.assertEqual(sum(block["size"] for block in segment["blocks"]), segment["total_size"])

    def test_snapshot_as_pytorch_writes_it(self) -> None:
        def entry(action: str, address: int, size: int, **more: object) -> dict[str, object]:
            return {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames, **more}

        frames = [{"filename": "a.py", "line": 3, "name": "f"}]
        entries = [
            entry("segment_alloc", 0x7F1200000000, 20971520),
            entry("free_requested", 0x7F1299999000, 512),  # from before the history
            entry("alloc", 0x7F1200000000, 1000, pool_id=(0, 0)),
            entry("alloc", 0x7F1200100000, 5000, pool_id=(0, 3), stream=0x55AA55AA5500),
            entry("free_requested", 0x7F1200000000, 1000),
            entry("free_completed", 0x7F1200000000, 1000),
            {"action": "oom", "device_free": 12, "size": 1 << 45, "stream": 0, "frames": []},
            entry("snapshot", 0, 0),
        ]
        document = {"segments": [], "device_traces": [entries], "allocator_settings": {"x": -1.5, "y": None, "z": True}}
        wanted = f"a 1 1000 0\na 2 5000 1 0 0 1\nf 1 0\nx {1 << 45} 0\n"
        for protocol in 2, 3, 4:
            done = self.call("convert", self.file("s.pickle", pickle.dumps(document, protocol)), "-")
            self.assertEqual(done.stdout, wanted)
            self.assertIn("1 frees of blocks from before", done.stderr)
        self.assertEqual(self.text_of(self.file("s.json", json.dumps(document))), wanted)

    def test_rmm_log(self) -> None:
        log = self.file("log.csv", RMM)
        self.assertEqual(self.text_of(log), RMM_AS_TEXT)
        self.assertEqual(self.through(RMM_AS_TEXT, "a.csv"), RMM_AS_TEXT)
        self.assertEqual(self.row(log), self.row(self.file("log.txt", RMM_AS_TEXT)))

    def test_events_left_out_are_counted(self) -> None:
        path = self.file("a.txt", "a 1 512 0\n+ x\nr 1 2\n-\nf 1 0\n")
        self.assertIn("3 events were left out", self.call("convert", path, str(self.folder / "a.csv")).stderr)

    # ---- what is wrong is named ----

    def refuse(self, name: str, content: str | bytes, *parts: str, to: str = "out.txt") -> None:
        path = self.file(name, content)
        done = self.call("convert", path, str(self.folder / to), code=1)
        for part in (name, *parts):
            self.assertIn(part, done.stderr)
        self.assertFalse((self.folder / to).exists())

    def test_bad_lines(self) -> None:
        self.refuse("a.txt", "a 1 512 0\nq 1\n", ":2:", "no event begins so")
        self.refuse("a.txt", "f 1\n", ":1:", "number of fields")
        self.refuse("a.csv", RMM.replace("0x9,f", "zz,f"), ":7:", "must be numbers")
        self.refuse("a.csv", RMM + "1,x,grow,0x1,2,0,h\n", ":9:", "the action is none of")
        self.refuse("a.csv", RMM + "1,x,free,0x77,2,0,h\n", ":9:", "not allocated before")
        self.refuse("a.csv", RMM.replace("Pointer", "Place"), ":1:", "the header lacks")
        self.refuse("a.txt", "a 1 512 0 3\n", "device 3", to="b.csv")
        self.call("convert", self.file("a.txt", ""), str(self.folder / "b.unknown"), code=1)

    def test_pickles_that_are_more_than_data(self) -> None:
        class Evil:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return print, ("run",)

        for protocol in 2, 4:
            self.refuse("e.pickle", pickle.dumps({"device_traces": [Evil()]}, protocol), "byte ", "is not carried out")
        self.refuse("e.pickle", b"\x80\x02" + b"N\x85" * 300000 + b"0", "byte ")
        self.refuse("e.pickle", b"\x80\x02K\x01N" + b"\x85" * 300000 + b"a.", "byte ")
        whole = pickle.dumps({"device_traces": [[{"action": "alloc", "size": 1, "addr": 2}]]}, 4)
        for length in range(2, len(whole) - 1):
            self.refuse("e.pickle", whole[:length])
        self.refuse("e.pickle", pickle.dumps({"segments": []}), "no device_traces")
        self.refuse("e.json", '{"device_traces":\n [}', "e.json:2")

    def test_recordings_that_break_off_or_are_damaged(self) -> None:
        text = "".join(f"a {i} {512 * (i * 7919 % 1000 + 1)} {i % 7}\nf {i} {i % 7}\n" for i in range(1, 60000))
        self.call("convert", self.file("long.txt", text), str(self.folder / "long.seamtrace"))
        whole = (self.folder / "long.seamtrace").read_bytes()
        done = self.call("replay", self.file("cut.seamtrace", whole[: len(whole) - 100]))
        self.assertIn("breaks off at byte", done.stderr)
        self.assertTrue(self.row(self.file("cut.seamtrace", whole[: len(whole) - 100]))["cut_short"])
        self.assertFalse(self.row(str(self.folder / "long.seamtrace"))["cut_short"])
        damaged = bytearray(whole)
        damaged[len(damaged) // 2] ^= 1
        self.assertIn("byte ", self.call("replay", self.file("bad.seamtrace", bytes(damaged)), code=1).stderr)

    def test_the_checksum_is_that_of_zlib(self) -> None:
        self.call("convert", self.file("a.txt", "a 1 512 0\n"), str(self.folder / "a.seamtrace"))
        content = (self.folder / "a.seamtrace").read_bytes()
        end = 16 + int.from_bytes(content[12:16], "little")
        self.assertEqual(zlib.crc32(content[:end]), int.from_bytes(content[end : end + 4], "little"))

    # ---- replay ----

    def test_a_replay_is_what_was_recorded(self) -> None:
        """Whatever form, and however often: one order, and the same figures."""
        text = self.file("a.txt", THREADED)
        self.call("convert", text, str(self.folder / "a.seamtrace"))
        first = self.row(text)
        self.assertEqual(first["failed"], 1)
        self.assertEqual(first["devices"], 2)
        self.assertEqual(first["events"], 18)
        for path in text, str(self.folder / "a.seamtrace"):
            for _ in range(3):
                self.assertEqual(self.row(path), first)
        # Other threads made the same requests in the same order.
        renamed = THREADED.replace("f 1 0 1", "f 1 0 3").replace("7 1 2", "7 1 6")
        self.assertEqual(self.row(self.file("b.txt", renamed)), first)

    def test_tune_writes_a_policy_that_replay_takes(self) -> None:
        trace = self.file("a.txt", "".join(f"a {i} {(i % 7 + 1) << 20} 0\n" for i in range(40)))
        policy = trace + ".tuned.conf"
        self.call("tune", "--out", policy, "--budget", "5", trace)
        text = Path(policy).read_text()
        self.assertIn(f"# tuned on {trace}\n", text)
        self.assertIn("policy:stitch\n", text)
        self.call("replay", "--policy", policy, trace)
        self.assertIn("whole numbers above 0", self.call("tune", "--budget", "x", trace, code=2).stderr)
        self.assertIn("usage: seamalloc tune", self.call("tune", code=2).stderr)

    def test_pools_keep_to_themselves(self) -> None:
        """A pool's memory serves no other request, in whatever way the trace tells the pool."""
        apart = "b 1\na 1 1048576 0\nf 1 0\ne 1\na 2 1048576 0\n"
        told = "a 1 1048576 0 0 0 1\nf 1 0\na 2 1048576 0\n"
        same = "a 1 1048576 0\nf 1 0\na 2 1048576 0\n"
        peaks = [self.row(self.file("a.txt", text))["reserved_peak"] for text in (apart, told, same)]
        self.assertGreater(peaks[0], peaks[2])
        self.assertEqual(peaks[1], peaks[0])

    def test_requests_that_end_otherwise(self) -> None:
        text = f"a 1 1048576 0\na 2 {90 * GIB} 0\n"
        done = self.call("replay", self.file("a.txt", text), code=1)
        for part in ("event 2", f"request of {90 * GIB} bytes", "largest_free"):
            self.assertIn(part, done.stderr)
        self.assertNotIn("largest_free -1", done.stderr)
        done = self.call("replay", self.file("a.txt", "a 1 512 0\nx 512 0\n"), code=1)
        self.assertIn("event 2", done.stderr)
        self.assertIn("was served here", done.stderr)
        done = self.call("replay", self.file("a.txt", "a 1 512 0\nf 1 0\nf 1 0\n"), code=1)
        self.assertIn("event 3: no block has this id", done.stderr)


if __name__ == "__main__":
    COMMAND = sys.argv.pop(1)
    unittest.main(verbosity=2)
