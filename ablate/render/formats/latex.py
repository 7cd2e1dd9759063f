"""The report as a LaTeX document with booktabs, for pdfLaTeX and its successors; figures as PDF beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import singledispatch
from typing import Literal

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import AnswerRow, compared_rows, verdict_word
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import count, fixed, plural
from ablate.analysis.report import StudyReport
from ablate.portable_names import FILE, portable_name
from ablate.render.blocks import Grid, Items, Listing, Paragraph, Picture, ReportDocument, with_code
from ablate.render.document import document, document_of_questions
from ablate.render.formats import Format, Place, file_stem
from ablate.spec.design import split_axis

_PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\usepackage[a4paper,margin=18mm]{geometry}
\usepackage{array,booktabs,longtable,graphicx}
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.5em}
\setlength{\tabcolsep}{4pt}
\begin{document}
"""
_COMMANDS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    '"': r"\symbol{34}",  # \textquotedbl needs an encoding that a paper may not have
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "→": r"\ensuremath{\rightarrow}",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\ldots{}",
} | {special: f"\\{special}" for special in "&%$#_{}"}
_LIGATURE = re.compile(r"([-,])(?=\1)")
_BREAKS = re.compile(r"(?<=[=/@])(?=\w)|(?<=,)(?=[A-Za-z])|(?<=\w_)(?=\w)|(?<=[a-z]\.)(?=[a-z])")
_LETTERS = "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿŁłŃńŘřŚśŠšŽžČčĆćĚěŐőŰűŞşĞğİı"
"""What pdfLaTeX sets as it is; any other character beyond ASCII is written as its number, so that it compiles."""


def escape(text: str) -> str:
    """Text of a user's as LaTeX that sets it as it is, on one line."""
    return _escape(" ".join(text.split()))


def _escape(text: str) -> str:
    return "".join(map(_character, _LIGATURE.sub("\\1\0", text)))


def _character(character: str) -> str:
    if character == "\0":  # parts what would become a dash or a quotation mark
        return "{}"
    if character in _COMMANDS:
        return _COMMANDS[character]
    return character if " " <= character <= "\x7e" or character in _LETTERS else f"[U+{ord(character):04X}]"


def _breakable(text: str) -> str:
    """The same for a narrow column: long names may break after `=`, `_`, a slash, or a dot between words."""
    return _broken(" ".join(text.split()))


def prose(text: str) -> str:
    """A sentence as LaTeX that sets it as it is, with the code in its backticks in the font of code."""
    return with_code(text, _broken, lambda code: rf"\texttt{{{_broken(code)}}}")


def _broken(line: str) -> str:
    return r"\allowbreak{}".join(_escape(part) for part in _BREAKS.split(line))


@singledispatch
def _write(block: object, study: str) -> str:
    raise NotImplementedError(type(block))


@_write.register
def _paragraph(block: Paragraph, study: str) -> str:
    return prose(block.text)


@_write.register
def _items(block: Items, study: str) -> str:
    lines = "\n".join(rf"\item {{}}{prose(text)}" for text in block.texts)
    return f"\\begin{{itemize}}\n{lines}\n\\end{{itemize}}" if lines else ""


@_write.register
def _grid(block: Grid, study: str) -> str:
    # Texts share what the numbers, about 40 % of the line in the widest table, leave.
    numbers = len(block.titles) - len(block.texts)
    share = (0.92 - 0.075 * numbers) / len(block.texts)
    text = rf">{{\raggedright\arraybackslash}}p{{{share:.3f}\linewidth}}"
    columns = "".join(text if number in block.texts else "r" for number in range(len(block.titles)))
    head = f"{_row(block.titles)}"
    groups = "\n\\midrule\n".join("\n".join(map(_row, group)) for group in block.groups)
    table = f"\\toprule\n{head}\n\\midrule\n\\endhead\n{groups}\n\\bottomrule"
    return f"{{\\footnotesize\n\\begin{{longtable}}{{@{{}}{columns}@{{}}}}\n{table}\n\\end{{longtable}}}}"


def _row(cells: tuple[str, ...]) -> str:
    return f"{' & '.join(map(_breakable, cells))} \\\\"


@_write.register
def _listing(block: Listing, study: str) -> str:
    lines = "\n".join(_line(line) for line in block.text.splitlines())
    return f"{{\\footnotesize\\ttfamily\\frenchspacing\\raggedright\n{lines}\n}}"


def _line(line: str) -> str:
    # `~` is a blank that TeX keeps; `\mbox{}` makes an empty line a line.
    kept = re.sub(r"^ +| {2,}", lambda blanks: "~" * len(blanks[0]), _escape(line.expandtabs()))
    return rf"\mbox{{}}{kept}\par\vspace{{-0.5em}}"


@_write.register
def _picture(block: Picture, study: str) -> str:
    picture = (
        rf"\includegraphics[width=0.85\linewidth,height=0.85\textheight,keepaspectratio]{{{study}_{block.name}.pdf}}"
    )
    return f"\\begin{{center}}\n{picture}\n\n{{\\small {prose(block.caption)}}}\n\\end{{center}}"


def paper_table(report: StudyReport) -> str:
    """The answer of a study as a `table` for `\\input` in a paper, with caption and label; it needs only `booktabs`."""
    answer, means = answer_of(report), {row.name: row.mean(report.metric) for row in report.variants}
    sizes = {row.name: "" if row.parameters is None else count(row.parameters) for row in report.variants}

    def cells(name: str, words: str, apart: str, verdict: str) -> str:
        mean = means[name]
        value = "" if mean is None else fixed(mean.mean, answer.decimals)
        return f"{' & '.join(map(escape, (words, sizes[name], value, apart, verdict)))} \\\\"

    compared = compared_rows(report)
    baselines = dict.fromkeys(report.baseline_of(row.name).name for row in compared) or [report.record.baseline]
    groups = ["\n".join(cells(name, name if split_axis(name)[1] else "baseline", "", "") for name in baselines)]
    for group in answer.groups:
        rows = []
        for row in group.rows:
            word = verdict_word(group.key, row) + "*" * (row.bound is not None and not row.jointly)
            rows.append(cells(row.variant, row.label, _interval(row, answer.decimals), word))
        groups.append("\n".join(rows))
    pairs = sorted(row.difference.n for row in compared if row.difference is not None and not row.lost)
    over = f"over {f'{pairs[0]} to ' * (pairs[0] < pairs[-1])}{plural(pairs[-1], answer.unit)}" if pairs else ""
    of = f"{answer.metric} from the baseline{', as a share of it' * answer.relative}"
    notes = [f"Difference of {of}, {answer.pairing} {over}, with its 90 % interval,",
             f"whose ends are the one-sided 95 % bounds that verdicts rest on. Margin {answer.margin:g}."]  # fmt: skip
    if any(row.bound is not None and not row.jointly for row in answer.rows):
        notes.append("*: holds alone, not jointly with the other verdicts (Holm, 5 %).")
    if answer.parts:
        notes.append(f"{answer.parts_note}.")
    label = portable_name(report.record.name, FILE).replace(" ", "-")
    return (
        "% Needs \\usepackage{booktabs}.\n\\begin{table}\n\\centering\n"
        f"\\caption{{{escape(f'{answer.question} {answer.headline[0]}')}}}\n\\label{{tab:{label}}}\n"
        "\\begin{tabular}{@{}lrrrl@{}}\n\\toprule\n"
        f"change & parameters & {escape(answer.metric)} & difference & verdict \\\\\n\\midrule\n"
        + "\n\\addlinespace\n".join(groups)
        + "\n\\bottomrule\n\\end{tabular}\n\n\\smallskip\n"
        + f"{{\\footnotesize {escape(' '.join(notes))}}}\n\\end{{table}}\n"
    )


def _interval(row: AnswerRow, decimals: int) -> str:
    """A difference with its interval: `+0.09 [+0.04, +0.14]`."""
    if row.difference is None:
        return ""
    ends = [
        "" if math.isinf(end) else fixed(end, decimals, sign=True) for end in (row.low, row.high) if end is not None
    ]
    difference = fixed(row.difference, decimals, sign=True)
    return f"{difference} [{', '.join(ends)}]" if row.low is not None and row.high is not None else difference


def _latex(made: ReportDocument) -> str:
    parts = [rf"{{\Large\bfseries {escape(made.title)}\par}}"]
    for section in made.sections:
        study = "" if section.of is None else file_stem(section.of)
        heading = rf"\{'sub' * (section.level - 2)}section*{{{escape(section.title)}}}"
        parts += [heading, *(_write(block, study) for block in section.blocks)]
    return _PREAMBLE + "\n\n".join(parts) + "\n\\end{document}\n"


class LatexFormat(Format):
    """The report as a LaTeX document with booktabs, for pdfLaTeX and its successors; figures as PDF beside it."""

    kind: Literal["latex"] = "latex"
    suffix = "tex"
    figures = ("pdf", "svg", "png")

    def companions(self, findings: Findings) -> dict[str, str]:
        """The table of a paper, for `\\input`."""
        return {"_table.tex": paper_table(findings.report)}

    def render(self, findings: Findings, place: Place) -> str:
        """The whole document."""
        return _latex(document(findings, place.pictures))

    def render_questions(self, answer: Answer, findings: Sequence[Findings], places: Sequence[Place]) -> str:
        """Their one answer, then each of them."""
        return _latex(document_of_questions(answer, findings, [place.pictures for place in places]))
