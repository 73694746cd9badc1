"""Any data by its path: rows that are read one at a time, with a name for each, and a list of those that cannot be.

    rows = open_data(path, *, preprocess=None, x=None, label="auto", name="auto", classes=None, on_error="stop")

    len(rows), rows.names[i], rows.about     how many, the name of row i, in words what it is
    rows.labels, rows.classes                int64 [N] or None; the names of the classes or None
    rows.read(i)                             the tensor or mapping of row i, without a batch dimension; pure and
                                             thread-safe; raises where the row cannot be used
    rows.attempt(i)                          the same, but gives a `Problem` in place of raising; for worker threads
    rows.assemble(indices, attempts)         a `Batch` of what `attempt` gave, or None where no row is left; notes
                                             problems, and with on_error="stop" raises an InputError for the first
    rows.batches(size, start=0, stop=None, mapper=map)
                                             Batch(indices, names, inputs, labels) in order: rows k·size + start to
                                             (k + 1)·size + start, less those with problems; mapper may be a pool's
                                             ``map``, which then reads the rows of a batch side by side
    rows.problems                            list of Problem(index, name, reason), by index, each row once
    rows.identity                            a hash that changes when the list of rows or the pre-processing does

path                                what is in it
a folder                            pictures, in sub-folders that name their class, or all in one
``.txt``                            a list of pictures: a path on each line, and after it, if wanted, a label
``.npz``, ``.npy``                  arrays: x and, if wanted, y; or several, for a model that takes them by these names
``.parquet``, a folder of such      columns of numbers, of texts, of lists, of pictures or of paths to them
``.csv``, ``.tsv``                  columns of numbers, of texts, or of paths to pictures
a folder of ``save_to_disk``        a data set of Hugging Face (read with pyarrow alone)

Nothing but an index (places, names, labels) is held in memory; only a compressed ``.npz`` is read as a whole.
preprocess: what `nescio.models.sources` gives; without it pictures are tensors ``[3, H, W]`` in [0, 1] as large as they
are, and numbers as they are. x: the array or column (or list of columns) of inputs; label, name: those columns, "auto"
to find them by their usual names, None for none. classes: the model's class names, by which labels in words are read.
"""

from nescio.data.sources.data_opening import open_data
from nescio.data.sources.rows import Batch, Problem, Rows

__all__ = ["open_data", "Rows", "Batch", "Problem"]
