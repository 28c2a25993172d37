# SPDX-License-Identifier: Apache-2.0
"""The collector of scripts/lib: its last line is what a person believes, so each way to lose a failure is tried."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.sax.saxutils import quoteattr

COLLECT = Path(__file__).resolve().parents[2] / "scripts/lib/collect.py"


def case(name, status, output="", inner=""):
    return f"<testcase name={quoteattr(name)} status='{status}'>{inner}<system-out>{output}</system-out></testcase>"


def suite(*cases):
    return "<testsuite>" + "".join(cases) + "</testsuite>"


class Collect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def stage(self, name, kind, status, text=None, chosen="whole"):
        (self.folder / f"{name}.stage").write_text(f"{kind} {status} {chosen}\n")
        if text is not None:
            suffix = "tap" if kind == "tap" else "xml"
            (self.folder / f"{name}.{suffix}").write_text(text)

    def expect(self, passed, failed, skipped):
        """Checks counts and exit status; returns the lines before the count."""
        run = subprocess.run([sys.executable, COLLECT, self.folder], capture_output=True, text=True)
        lines = run.stdout.splitlines()
        self.assertEqual(lines[-1], f"{passed} passed, {failed} failed, {skipped} skipped", run.stdout + run.stderr)
        self.assertEqual(run.returncode, 1 if failed or not passed else 0)
        return "\n".join(lines[:-1])

    def test_each_function_of_a_program_counts(self):
        output = "1..2\nok 1 - a\nok 2 - b\n# ok - group\n1..1\nok 1 - c\n# ok - other group\n"
        self.stage("1", "ctest", 0, suite(case("unit", "run", output), case("plain", "run", "done")))
        self.expect(4, 0, 0)

    def test_failed_function_is_named(self):
        output = "1..2\nok 1 - a\nnot ok 2 - b\n# 1 != 2\n"
        self.stage("1", "ctest", 8, suite(case("unit", "fail", output)))
        self.assertIn("unit: b", self.expect(1, 1, 0))

    def test_failed_program_without_a_failed_function(self):
        output = "1..1\nok 1 - a\n"
        self.stage("1", "ctest", 8, suite(case("unit", "fail", output, "<failure message='SEGFAULT'/>")))
        self.assertIn("SEGFAULT", self.expect(1, 1, 0))

    def test_program_that_died_in_between(self):
        self.stage("1", "ctest", 8, suite(case("unit", "fail", "1..5\nok 1 - a\n")))
        self.assertIn("4 of 5 planned", self.expect(1, 1, 0))

    def test_program_that_left_early_with_success(self):
        self.stage("1", "ctest", 0, suite(case("unit", "run", "1..5\nok 1 - a\n")))
        self.expect(1, 1, 0)

    def test_skips_carry_their_reasons(self):
        cmocka = "1..2\nok 1 - a\nno device here\nnot ok 2 # SKIP b\n"
        skipped = "<skipped message='SKIP_RETURN_CODE=77'/>"
        self.stage("1", "ctest", 0, suite(case("unit", "run", cmocka), case("gpu", "notrun", "no GPU\n", skipped)))
        told = self.expect(1, 0, 2)
        self.assertIn("unit: b (no device here)", told)
        self.assertIn("gpu (no GPU)", told)

    def test_skip_without_a_reason_fails(self):
        output = "1..2\nok 1 - a\nnot ok 2 # SKIP b\n"
        skipped = "<skipped message='SKIP_RETURN_CODE=77'/>"
        self.stage("1", "ctest", 0, suite(case("unit", "run", output), case("gpu", "notrun", "", skipped)))
        self.expect(1, 2, 0)

    def test_program_that_was_not_found(self):
        self.stage("1", "ctest", 0, suite(case("a", "run"), case("b", "notrun", "", "<skipped message='no file'/>")))
        self.expect(1, 1, 0)

    def test_status_that_no_test_explains(self):
        self.stage("1", "ctest", 8, suite(case("a", "run")))
        self.assertIn("status 8", self.expect(1, 1, 0))

    def test_missing_and_broken_results(self):
        self.stage("1", "ctest", 0)
        self.stage("2", "pytest", 0, "<testsuite>")
        self.stage("3", "ctest", 0, suite(case("a", "run")))
        self.expect(1, 2, 0)

    def test_stage_without_tests(self):
        self.stage("1", "ctest", 0, suite())
        self.stage("2", "ctest", 0, suite(case("a", "run")))
        self.assertIn("ran no test", self.expect(1, 1, 0))

    def test_stage_without_tests_that_was_narrowed(self):
        self.stage("1", "pytest", 5, suite(), "narrowed")
        self.stage("2", "ctest", 0, suite(case("a", "run")), "narrowed")
        self.expect(1, 0, 0)

    def test_nothing_at_all(self):
        self.expect(0, 1, 0)

    def test_step_counts_only_when_it_fails(self):
        self.stage("1", "step", 0)
        self.stage("2", "step", 2)
        self.stage("3", "ctest", 0, suite(case("a", "run")))
        self.assertIn("2: ended with status 2", self.expect(1, 1, 0))

    def test_pytest_outcomes(self):
        text = suite(
            "<testcase classname='t' name='good'/>",
            "<testcase classname='t' name='bad'><failure message='x'/></testcase>",
            "<testcase classname='t' name='broken'><error message='x'/></testcase>",
            "<testcase classname='t' name='left'><skipped message='needs a GPU'/></testcase>",
        )
        self.stage("1", "pytest", 1, text)
        self.assertIn("t.left (needs a GPU)", self.expect(1, 2, 1))

    def test_tap_stage(self):
        self.stage("1", "tap", 1, "1..2\nok 1 - format\nsome output\nnot ok 2 - types\n")
        self.expect(1, 1, 0)

    def test_output_that_xml_cannot_hold(self):
        output = "[NON-XML-CHAR-0x1B][31mred\n1..1\nok 1 - a\n"
        self.stage("1", "ctest", 0, suite(case("unit", "run", output)))
        self.expect(1, 0, 0)


class TapResult(unittest.TestResult):
    """Prints one TAP line for each test, so that the collector counts its own tests like all others."""

    def __init__(self, total):
        super().__init__()
        print(f"1..{total}", flush=True)

    def stopTest(self, test):
        super().stopTest(test)
        told = [text for failed, text in self.failures + self.errors if failed is test]
        print("".join(told) + f"{'not ok' if told else 'ok'} {self.testsRun} - {test.id().split('.')[-1]}", flush=True)


if __name__ == "__main__":
    tests = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = TapResult(tests.countTestCases())
    tests.run(result)
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
