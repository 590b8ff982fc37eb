"""Gates and validity as JUnit XML, so that any CI shows them as tests. A gate that passed is a test that passed.

An INVALID measurement makes every gate an error: it can never turn green (MEASUREMENT.md). It must not know exit codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

from benchlab.report.html import visible
from benchlab.report.view import Summary, items, mapping, rules_of, show, worst_of_each


def junit(summary: Summary) -> str:
    """The XML document as text."""
    invalid = mapping(summary.get("verdict")).get("state") == "INVALID"
    suites = ElementTree.Element("testsuites", name="benchlab")
    _suite(suites, "validity", _validity(summary))
    _suite(suites, "gates", _gates([mapping(gate) for gate in items(summary.get("gates"))], invalid))
    ElementTree.indent(suites)
    return "<?xml version='1.0' encoding='utf-8'?>\n" + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _case(name: object) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname="benchlab", name=visible(name, 300))


def _validity(summary: Summary) -> list[ElementTree.Element]:
    cases = []
    for rule, _ in worst_of_each(rules_of(summary.get("verdict"))):
        case = _case(rule.name)
        message = visible(f"{rule.value} (limit {rule.limit}) {rule.hint}".strip(), 1000)
        if rule.state == "fail":
            ElementTree.SubElement(case, "failure", message=message)
        elif rule.state == "not checked":
            ElementTree.SubElement(case, "skipped", message=message)
        elif rule.state == "warn":
            ElementTree.SubElement(case, "system-out").text = f"warning: {message}"
        cases.append(case)
    return cases


def _gates(gates: list[Mapping[str, object]], invalid: bool) -> list[ElementTree.Element]:
    cases = []
    for gate in gates:
        case = _case(gate.get("name", "gate"))
        message = visible(f"{show(gate.get('value'))} against {show(gate.get('limit'))}", 1000)
        if invalid:
            ElementTree.SubElement(case, "error", message="the measurement is INVALID, so no gate can pass")
        elif gate.get("passed") is not True:
            ElementTree.SubElement(case, "failure", message=message)
        else:
            ElementTree.SubElement(case, "system-out").text = message
        cases.append(case)
    return cases


def _suite(suites: ElementTree.Element, name: str, cases: list[ElementTree.Element]) -> None:
    suite = ElementTree.SubElement(suites, "testsuite", name=name, tests=str(len(cases)))
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    suite.extend(cases)
