"""``widegp predict``"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widegp.cli import options
from widegp.cli.errors import interrupted_with
from widegp.cli.output import console, not_the_same, print_json, warn
from widegp.cli.writers import check_suffix, is_typed, table_writer

if TYPE_CHECKING:
    import pyarrow as pa

    from widegp.data.tables import TableSource
    from widegp.notices import Notice
    from widegp.table_model import TableModel

# Cells of the table in a batch, which take about 60 bytes each on their way, and rows.
BATCH_CELLS = 2**20
BATCH_ROWS = 32768
# Neighbours of its own, or all rows of an exact fit, make a row cost milliseconds; the bar should still move.
BATCH_ROWS_SLOW = 1024
OUTSIDE = "outside"
# Batches whose pace tells when the rest will be done.
PACE_BATCHES = 8


def predict(
    model: options.ModelFile,
    table: options.TableFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="A .csv, .tsv or .parquet file.")],
    level: options.Level = 0.95,
    prefix: Annotated[str, typer.Option(help="Put before the names of the new columns.")] = "",
    backend: Annotated[
        options.BackendName | None, typer.Option(help="By default the backend that fitted.")
    ] = None,
    predict_neighbors: Annotated[
        int | None,
        typer.Option(
            min=1, help="Nearest rows that each prediction is conditioned on; by default as fitted."
        ),
    ] = None,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> None:
    """Add what is predicted to the rows of a table.

    The columns of the table are kept, and mean, sd, lower, upper and outside added. By the model, a new
    observation falls between lower and upper with probability --level. Several outputs have their names in
    front of these. Classes have class, the likeliest; a probability for each; and set, classes with | in
    between, among which the true one is with probability --level, as the held-out rows tell. Where outside is
    true, a number or date of the row lies beyond the training range: the prediction is an extrapolation, and
    neither it nor its interval was tested there. Rows are read, predicted and written in batches, so tables
    may be larger than memory.

    \b
    Examples:
      widegp predict houses.widegp new.csv --out predicted.csv
      widegp predict houses.widegp new.parquet --out predicted.parquet --level 0.8 --prefix price_
    """
    check_suffix(out)
    not_the_same(out, model=model, table=table)
    began = time.perf_counter()
    stopped = f"Interrupted; {out} was not written. Run the same command to begin again."
    with interrupted_with(lambda: stopped):
        from widegp.data.tables import open_table
        from widegp.data.text import Reading
        from widegp.table_model import TableModel

        fitted = TableModel.load(model, backend, predict_neighbors)
        keep_in_file(fitted)
        source = open_table(table, Reading(encoding=encoding))
        names = [prefix + name for name in (*fitted.column_names, OUTSIDE)]
        _check_names(source, names)
        rows, outside, noticed = _stream(fitted, source, out, level, names)
    with interrupted_with(lambda: f"Interrupted; {out} is written."):
        told = {"out": str(out), "rows": rows, "outside": outside, "level": level, "columns": names}
        _tell(told | {"seconds": time.perf_counter() - began}, noticed, as_json)


def _tell(told: dict[str, Any], noticed: Counter[Notice], as_json: bool) -> None:
    from widegp.notices import in_words

    said = in_words(noticed)
    if as_json:
        print_json(told | {"warnings": said})
        return
    for text in said:
        warn(f"{text}.")
    if told["outside"]:
        warn(
            f"{told['outside']:,} of {told['rows']:,} rows lie outside the training range (column"
            f" {told['columns'][-1]!r}): no held-out row has tested predictions there."
        )
    typer.echo(f"{told['rows']:,} rows in {told['out']}, with the columns {', '.join(told['columns'])}.")


def _check_names(source: TableSource, names: list[str]) -> None:
    taken = [name for name in names if name in source.names]
    if taken:
        raise ValueError(
            f"{source.path} already has a column {taken[0]!r}; pass --prefix to name the new ones otherwise."
        )


def _stream(
    model: TableModel, source: TableSource, out: Path, level: float, names: list[str]
) -> tuple[int, int, Counter[Notice]]:
    """Predict batch by batch, in the memory of one batch: rows, those outside the range, what was odd."""
    rows, outside, noticed = 0, 0, Counter[Any]()
    numeric = _numeric(model, source) if source.is_text and is_typed(out) else {}
    with table_writer(out) as writer, _bar(source) as advance:
        for batch in source.batches(_batch_rows(model, len(source.names))):
            predicted = model.predict_columns(batch, level)
            new = dict(zip(names, (*predicted.columns.values(), predicted.outside), strict=True))
            writer.write_batch(_extended(batch, new, numeric))
            noticed += predicted.warnings
            rows += batch.num_rows
            outside += int(predicted.outside.sum())
            advance(batch.num_rows)
    return rows, outside, noticed


def _numeric(model: TableModel, source: TableSource) -> dict[str, str]:
    """The columns of a text file that are numbers in every row, and how these are written.

    Those that the model reads are refused where they are not; of the others all rows must be looked at.
    """
    from widegp.data.text import clean, parse

    columns = [column for column in model.encoder.columns if column.kind == "numeric"]
    notations = {column.name: column.notation or "plain" for column in columns}
    if model.classes is None:
        notations |= {name: "plain" for name in model.predicted.names}
    read = {column.name for column in columns if column.features()}
    doubtful = [name for name in notations if name in source.names and name not in read]
    for batch in source.batches(columns=doubtful) if doubtful else ():
        for name in {*doubtful} & {*notations}:
            if isinstance(parse(clean(batch.column(name)), notations[name]), int):
                del notations[name]
    return notations


def keep_in_file(table: TableModel) -> None:
    """A table is read once, in batches: what is made of training rows need not stay in memory in between."""
    for part in table.parts:
        for model in part.models:
            model.predictor.keep_in_file()


def _batch_rows(model: TableModel, columns: int) -> int:
    from widegp.approximations.registry import approximation

    for part in model.parts:
        if approximation(part.approximation).exact or (part.rows is not None and not part.rows.cells):
            return BATCH_ROWS_SLOW
    return max(BATCH_ROWS_SLOW, min(BATCH_ROWS, BATCH_CELLS // columns))


def _extended(batch: pa.RecordBatch, new: dict[str, Any], numeric: dict[str, str]) -> pa.RecordBatch:
    """The batch with the new columns; text in the notation of ``numeric`` becomes numbers."""
    import pyarrow as pa

    from widegp.data.text import clean, parse

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in columns.keys() & numeric.keys():
        columns[name] = parse(clean(columns[name]), numeric[name])
    columns |= {name: pa.array(values) for name, values in new.items()}
    return pa.RecordBatch.from_pydict(columns)


def _bar(source: TableSource) -> Any:
    """A context that gives a function of the rows just done; a bar on a terminal, nothing elsewhere."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        return nullcontext(lambda rows: None)
    return _BarOfRows(screen, source.rows_about())


class Pace:
    """When a table will be done: rows left times the median of seconds per row over the latest batches.

    The first batch does not count: what it makes of the training rows, the others find made.
    """

    def __init__(self, total: int | None) -> None:
        self.total, self.rows = total, 0
        self._each: list[float] = []
        self._since = time.perf_counter()

    def done(self, rows: int, now: float | None = None) -> float | None:
        """Seconds left after so many rows more; None after the first batch, or if their number is unknown."""
        now = time.perf_counter() if now is None else now
        self._each.append((now - self._since) / max(rows, 1))
        self._since, self.rows = now, self.rows + rows
        if self.total is None or len(self._each) < 2:
            return None
        return max(0, self.total - self.rows) * median(self._each[1:][-PACE_BATCHES:])


class _BarOfRows:
    def __init__(self, screen: Any, total: int | None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.progress = Progress(
            TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"), console=screen, transient=True,
        )  # fmt: skip
        self.task = self.progress.add_task("rows", total=total, left="")
        self.pace = Pace(total)

    def __enter__(self) -> Any:
        self.progress.start()
        return self._advance

    def _advance(self, rows: int) -> None:
        left = self.pace.done(rows)
        words = "" if left is None else f"{timedelta(seconds=round(left))} left"
        self.progress.update(self.task, advance=rows, left=words)

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
