"""Instance files and their check against a model: `find` the files of a folder, `read` them into a `Dataset`."""

from ampc.data.acyclic import check_acyclic
from ampc.data.dataset import Dataset
from ampc.data.files import find, read

__all__ = ["Dataset", "check_acyclic", "find", "read"]
