"""The options of the commands, each defined once."""

# Without `from __future__ import annotations`: typer reads annotations.

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Names = list[str] | None
AB = "A,B"

File = Annotated[str, Argument(metavar="FILE", help="A table.")]
Train = Annotated[str, Argument(metavar="TRAIN", help="The table to learn from.")]
Columns = Annotated[Names, Option(metavar=AB, help="Columns to use. Default: no IDs, dates, text.")]
Labels = Annotated[Names, Option(metavar=AB, help="Columns that are labels, even if numeric.")]
Exclude = Annotated[Names, Option(metavar=AB, help="Columns to leave out.")]
HEADER, SCALE, STREAM = "--header/--no-header", "--scale/--no-scale", "--stream/--no-stream"
Header = Annotated[bool | None, Option(HEADER, help="Whether the first line names the columns.")]
Missing = Annotated[Names, Option(metavar="X,Y", help="What else means missing, such as -,?,-999.")]
Encoding = Annotated[str | None, Option(help="Of text. Default: UTF-8, UTF-16, Western European.")]
Sheet = Annotated[str | None, Option(help="Of an Excel file. Default: the first one.")]
Scale = Annotated[bool, Option(SCALE, help="Divide columns by their standard deviations.")]
Alpha = Annotated[float, Option(help="Significance level.")]
ExitCode = Annotated[bool, Option("--exit-code", help="Exit with status 3 if the test rejects.")]
Permutations = Annotated[int, Option(min=1, help="Number of random permutations.")]
OrMoments = Annotated[
    int | None, Option(min=1, help="Permutations. Default: 999; none in batches.")
]
FalseDiscoveries = Annotated[bool, Option("--fdr", help="Bound the false discovery rate instead.")]
InBatches = Annotated[bool | None, Option(STREAM, help="Read in batches. Default: large files.")]
Blocks = Annotated[str | None, Option(metavar="N|auto", help="Time series: permute N rows each.")]
Groups = Annotated[str | None, Option(metavar="E", help="Column of clusters, permuted whole.")]
Json = Annotated[bool, Option("--json", help="Print JSON only.")]
Report = Annotated[Path | None, Option(metavar="PAGE.html", help="Write an HTML page.")]
Plot = Annotated[Path | None, Option(metavar="FILE", help="Write a picture: png, svg or pdf.")]
Output = Annotated[Path | None, Option(metavar="FILE", help="Write csv, tsv, parquet, npz …")]
Force = Annotated[bool, Option("--force", help="Overwrite existing files.")]
Seed = Annotated[int, Option(min=0, help="Seed of the random numbers.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no notes and no progress bars.")]


# --- groups of options ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PageOptions:
    """Where the answer goes, and how much is printed."""

    json: Json = False
    report: Report = None
    force: Force = False
    quiet: Quiet = False

    @property
    def progress(self) -> bool | None:
        """Whether to show progress bars; None shows them on a terminal."""
        return False if self.quiet else None

    @property
    def paths(self) -> dict[str, Path]:
        """The files to write, by option."""
        found = {f"--{name}": getattr(self, name, None) for name in ("report", "plot", "output")}
        return {option: path for option, path in found.items() if path is not None}


@dataclass(frozen=True)
class PictureOptions(PageOptions):
    """The same with a picture."""

    plot: Plot = None


@dataclass(frozen=True)
class FileOptions(PictureOptions):
    """The same with random numbers: what most commands take."""

    seed: Seed = 0


@dataclass(frozen=True)
class OutputOptions(FileOptions):
    """The same with a table of answers."""

    output: Output = None


@dataclass(frozen=True)
class TableOptions:
    """How tables are read."""

    labels: Labels = None
    exclude: Exclude = None
    header: Header = None
    na: Missing = None
    encoding: Encoding = None
    sheet: Sheet = None

    @property
    def missing(self) -> list[str]:
        """What stands for a missing value, besides what pandas knows."""
        return [one.strip() for part in self.na or () for one in part.split(",")]

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            raise ValueError(
                f"--encoding: there is no encoding {self.encoding!r}. Usual ones are utf-8, "
                "utf-16, cp1252, latin-1 and shift-jis."
            ) from None


@dataclass(frozen=True)
class LevelOptions(TableOptions):
    """The same with a significance level."""

    alpha: Alpha = 0.05
    exit_code: ExitCode = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.alpha, "--alpha", 0.05)


@dataclass(frozen=True)
class MatrixOptions(LevelOptions):
    """What the test of all pairs of columns takes."""

    permutations: Permutations = 1999
    fdr: FalseDiscoveries = False


@dataclass(frozen=True)
class TestOptions(LevelOptions):
    """What the tests take."""

    __test__ = False  # not a test of pytest's

    scale: Scale = True
    permutations: OrMoments = None
    block_length: Blocks = None
    groups: Groups = None
    stream: InBatches = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block_length is not None and self.groups is not None:
            raise ValueError("--block-length and --groups cannot be combined. Use one of them.")
        if self.block_length not in (None, "auto") and not str(self.block_length).isdecimal():
            raise ValueError(
                f"--block-length must be a whole number or auto, got {self.block_length!r}."
            )
        if self.stream and not self.in_any_order:
            other = self.together or "--permutations"
            raise ValueError(f"--stream cannot be combined with {other}. Use one of them.")

    @property
    def together(self) -> str:
        """The option that says which rows stay together, if there is one."""
        given = {"--block-length": self.block_length, "--groups": self.groups}
        return next((name for name, value in given.items() if value is not None), "")

    @property
    def may_stream(self) -> bool:
        """Whether a large table may be tested by sums over batches of its rows."""
        return self.stream is None and self.in_any_order

    @property
    def in_any_order(self) -> bool:
        return not self.together and self.permutations is None


def check_share(value: float, option: str, example: float) -> None:
    """Refuse an option that is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{option} must lie between 0 and 1, got {value:g}. Try {example:g}.")
