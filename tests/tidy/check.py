# SPDX-License-Identifier: Apache-2.0
"""check.py [RULE...]: holds the rules of this folder against every file of the tree; all rules without an argument.

Each rule is two TAP lines: its self-test (each bad sample is found, each good one is not), and the tree."""

import sys

import rules_build
import rules_calls
import rules_contract
import rules_docs
import rules_files
import rules_layers
from tree import Rule, Source, Tree, read_tree

RULES = (
    *rules_layers.RULES,
    *rules_build.RULES,
    *rules_files.RULES,
    *rules_calls.RULES,
    *rules_contract.RULES,
    *rules_docs.RULES,
)


def findings(rule: Rule, source: Source, tree: Tree) -> list[str]:
    return [f"{source.path}:{line}: {text}" for line, text in rule.check(source, tree)]


def self_test(rule: Rule) -> list[str]:
    """What is wrong with the rule itself."""
    wrong = []
    if not rule.bad or not rule.good:
        wrong.append("a rule without samples proves nothing")
    for samples, must_find in ((rule.bad, True), (rule.good, False)):
        for sample in samples:
            files = [sample] if isinstance(sample[0], str) else sample
            sources = {path: Source(path, text) for path, text in files}
            found = findings(rule, sources[files[0][0]], Tree(sources))
            if bool(found) != must_find:
                wrong.append(f"{'missed' if must_find else 'wrongly found'}: {files} {found}")
    return wrong


def main() -> int:
    known = {rule.name: rule for rule in RULES}
    unknown = [name for name in sys.argv[1:] if name not in known]
    if unknown:
        sys.exit(f"check.py: unknown rule {unknown[0]}; there are {', '.join(known)}")
    chosen = [known[name] for name in sys.argv[1:]] or list(RULES)
    tree = read_tree()
    if len(tree.sources) < 10:
        sys.exit("check.py: found hardly any file; is this the tree?")
    print(f"1..{2 * len(chosen)}")
    failures = number = 0
    for rule in chosen:
        in_tree = [line for source in tree.sources.values() for line in findings(rule, source, tree)]
        for name, wrong in ((f"{rule.name}: self-test", self_test(rule)), (f"{rule.name}: tree", in_tree)):
            number += 1
            print("\n".join([*wrong, f"{'not ok' if wrong else 'ok'} {number} - {name}"]))
            failures += bool(wrong)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
