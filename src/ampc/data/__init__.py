"""Instance files and their check against a model: `find` the files of a folder, `read` them into a `Dataset`, write predictions.

The bundled data sets are in `ampc.data.recipes`, which is imported on demand.
"""

from ampc.data.acyclic import check_acyclic
from ampc.data.dataset import Dataset
from ampc.data.files import find, no_validation, read, split_to_predict
from ampc.data.write import write_dataset, write_predictions

__all__ = ["Dataset", "check_acyclic", "find", "no_validation", "read", "split_to_predict", "write_dataset", "write_predictions"]
