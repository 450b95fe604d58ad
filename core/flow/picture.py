"""Pictures of a flow: its steps as lines of text, or as a Mermaid graph.

Owns both forms, and the words for what a run waits for. Must not print.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from returns.result import Failure

from core.documents import field
from core.flow.graph import Graph, parse_graph, waiting_in_vain
from core.flow.status import STEP_STATUSES, StepStatus
from effects import Document

_COLOURS: Mapping[StepStatus, str] = {
    "PENDING": "fill:#f6f8fa,stroke:#8c959f,color:#57606a",
    "READY": "fill:#ddf4ff,stroke:#0969da,color:#0a3069",
    "RUNNING": "fill:#fff8c5,stroke:#bf8700,color:#4d2d00",
    "SUCCEEDED": "fill:#dafbe1,stroke:#1a7f37,color:#044f1e",
    "FAILED": "fill:#ffebe9,stroke:#cf222e,color:#82071e",
    "SKIPPED": "fill:#eaeef2,stroke:#8c959f,color:#57606a,stroke-dasharray:4",
    "CANCELLED": "fill:#eaeef2,stroke:#57606a,color:#57606a,stroke-dasharray:4",
}


def graph_as_text(flow_run: Document, graph: Graph) -> str:
    """Return the steps, each after those it depends on, with status, type and what is in its way."""
    in_vain = {one.step_id: one.because for one in waiting_in_vain(graph)}
    order = in_order(graph)
    width = max((len(one) for one in order), default=0)
    types = {one: _type_of(flow_run, one) for one in order}
    type_width = max((len(one) for one in types.values()), default=0)
    lines = []
    for one in order:
        after = f"after {', '.join(graph.depends_on[one])}" if graph.depends_on[one] else ""
        note = f"CAN NEVER RUN: {in_vain[one]}" if one in in_vain else after
        code = field(flow_run, "steps", one, "error", "code")
        said = f"{code}  {note}" if isinstance(code, str) else note
        lines.append(f"  {graph.statuses[one]:<9}  {one:<{width}}  {types[one]:<{type_width}}  {said}".rstrip())
    return "\n".join([f"flow_run {flow_run.get('runId')}: {flow_run.get('status')}", *lines])


def graph_as_mermaid(flow_run: Document, graph: Graph) -> str:
    """Return the steps as a Mermaid flowchart, coloured by status; a dependency that does not exist is shown as such."""
    order = in_order(graph)
    names = {one: f"s{number}" for number, one in enumerate(order, 1)}
    missing = sorted({one for ids in graph.depends_on.values() for one in ids if one not in names})
    names.update({one: f"m{number}" for number, one in enumerate(missing, 1)})
    nodes = [
        f'  {names[one]}["{_label(one)}<br/>{_label(_type_of(flow_run, one))}<br/>{graph.statuses[one]}"]'
        f":::{graph.statuses[one]}"
        for one in order
    ]
    holes = [f'  {names[one]}["{_label(one)}<br/>does not exist"]:::FAILED' for one in missing]
    arrows = [f"  {names[one]} --> {names[step_id]}" for step_id in order for one in graph.depends_on[step_id]]
    used = {*graph.statuses.values(), *(["FAILED"] if missing else [])}
    classes = [f"  classDef {status} {_COLOURS[status]}" for status in STEP_STATUSES if status in used]
    return "\n".join(["flowchart TD", *nodes, *holes, *arrows, *classes])


def _type_of(flow_run: Document, step_id: str) -> str:
    return str(field(flow_run, "steps", step_id, "stepType") or "?")


def _label(text: str) -> str:
    return "".join(f"#{ord(one)};" if one in '"#<>&\\`' or not one.isprintable() else one for one in text)


def steps_in_order(flow_run: Document) -> list[str]:
    """Return the step ids of a run, each after those it depends on; none where the steps make no sense."""
    graph = parse_graph(flow_run.get("steps"))
    return [] if isinstance(graph, Failure) else in_order(graph.unwrap())


def in_order(graph: Graph) -> list[str]:
    """Return the step ids, each after those it depends on; the ones in a circle stand at the end."""
    behind: dict[str, list[str]] = {one: [] for one in graph.statuses}
    waits = dict.fromkeys(graph.statuses, 0)
    for step_id, depends_on in graph.depends_on.items():
        for one in depends_on:
            if one in behind:
                behind[one].append(step_id)
                waits[step_id] += 1
    ready = sorted(one for one, count in waits.items() if not count)
    order: list[str] = []
    while ready:
        order += ready
        freed = set()
        for done in ready:
            for step_id in behind[done]:
                waits[step_id] -= 1
                if not waits[step_id]:
                    freed.add(step_id)
        ready = sorted(freed)
    return [*order, *sorted(set(graph.statuses).difference(order))]


def what_it_waits_for(flow_run: Document, graph: Graph, served: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each READY step of a type that is not served: who waits for whom, and what to do."""
    lines = []
    for one in in_order(graph):
        step_type = _type_of(flow_run, one)
        if graph.statuses[one] == "READY" and step_type not in served:
            waiting = sorted(step_id for step_id, ids in graph.depends_on.items() if one in ids)
            verb = "waits" if len(waiting) == 1 else "wait"
            behind = f"; {', '.join(waiting)} {verb} for it" if waiting else ""
            lines.append(f"{one} is READY, and no worker here serves {step_type}: --given {one}=FILE{behind}")
    return tuple(lines)
