"""The long forms of AMP8xx: data files and data recipes."""

from ampc.explanation import Explanation

CODES: dict[str, Explanation] = {
    "AMP801": Explanation(
        "no such data file or folder",
        "`--data` names a folder with `train.parquet` and `valid.parquet` (or .arrow, .jsonl), or a single file where one is enough. The "
        "path is taken as it stands, relative to the folder the command is given in; the file must be a regular one that can be read.",
        "ampc run list_reduction.ampx/manifest.json --data dat",
        "ampc data list_reduction -o data\nampc run list_reduction.ampx/manifest.json --data data",
    ),
    "AMP802": Explanation(
        "a part of the data is missing",
        "A data folder has one file for each part: `train`, `valid` and, if wanted, `test`, each as .parquet, .arrow or .jsonl, or in "
        "shards such as `train-00000.parquet`. Training needs `train`; stopping by a validation metric needs `valid`.",
        "data/\n  training_set.parquet",
        "data/\n  train.parquet\n  valid.parquet",
    ),
    "AMP803": Explanation(
        "a part of the data is there more than once",
        "Two files could both be meant, such as `train.parquet` and `train.jsonl`, or `valid.parquet` and `dev.parquet`. ampc doesn't "
        "guess which is newer.",
        "data/\n  train.jsonl\n  train.parquet",
        "data/\n  train.parquet",
    ),
    "AMP804": Explanation(
        "not the format that the name says, or damaged",
        "The end of a name says what a data file holds: .parquet, .arrow (or .feather, .ipc) or .jsonl (or .ndjson, .json). The first bytes are "
        "compared with it, and whatever can't be decoded is refused. A file that was cut short while being written or copied is the usual "
        "reason.",
    ),
    "AMP805": Explanation(
        "no instances",
        "The file is empty, has blank lines only, or has columns but no row. Training on nothing would end at once and look like success, "
        "and a validation metric over nothing has no value.",
    ),
    "AMP806": Explanation(
        "a line that isn't JSON",
        "Each line of a JSON-lines file is one whole object, one instance. JSON has no NaN and no Infinity: write null where the field is "
        "declared `or none`, or use Parquet. A last line that ends in the middle means that the file was cut short.",
        '{"x": [1.0, NaN], "y": 1}',
        '{"x": [1.0, 2.0], "y": 1}',
    ),
    "AMP807": Explanation(
        "a declared field is missing",
        "Every field of the `instance:` block must be in the data under its own name. A field that may be none is written as null, not "
        "left out: a misspelt name would otherwise pass as none. Further fields are ignored.",
        '{"symbl": [1], "label": 0}',
        '{"symbol": [1], "label": 0}',
    ),
    "AMP808": Explanation(
        "a field is given twice",
        "A JSON object that has a key twice, or a table with two columns of one name, doesn't say which of the two is meant.",
        '{"symbol": [1], "label": 0, "label": 1}',
        '{"symbol": [1], "label": 1}',
    ),
    "AMP809": Explanation(
        "a value of the wrong type",
        "A float field takes numbers; int and index fields take whole numbers (1.0 passes for 1); a flag takes true, false, 0 or 1. Text "
        "is never turned into a number, and true is no number: a column of the wrong type is more likely the wrong column.",
        '{"symbol": ["1", "2"], "label": 0}',
        '{"symbol": [1, 2], "label": 0}',
    ),
    "AMP810": Explanation(
        "a value of the wrong shape",
        "The nesting of lists follows the declaration: a field over an axis is a list, one over a nested axis is a list of lists, and a "
        "vector field adds a list of exactly so many numbers. ampc never reshapes: four numbers are not two pairs.",
        '# f: float[node, 2]\n{"f": [1, 2, 3, 4]}',
        '# f: float[node, 2]\n{"f": [[1, 2], [3, 4]]}',
    ),
    "AMP811": Explanation(
        "null where a value is needed",
        "null stands for none, and only a field declared `or none` may be none. An axis without elements is an empty list. In a vector "
        "field, none stands for the whole vector. A loss on a target that may be none needs a `branch` on it.",
        '# y: float\n{"x": [1.0], "y": null}',
        '# y: float or none\n{"x": [1.0], "y": null}',
    ),
    "AMP812": Explanation(
        "an integer out of its range",
        "`int < n` allows 0 to n - 1; a flag 0 and 1. Classes, kinds and words are counted from 0. A negative number doesn't count from "
        "the end, and -1 is not none: write null, and declare the field `or none`.",
        '# kind: int[bond] < 4\n{"kind": [1, 4]}',
        '# kind: int[bond] < 4\n{"kind": [0, 3]}',
    ),
    "AMP813": Explanation(
        "an index that points nowhere",
        "An index field holds positions of elements within the same instance, counted from 0: with three nodes, 0, 1 and 2. Numbers "
        "counted from 1, positions within the whole file, and names or ids of the elements are the usual mistakes. -1 is not none: write "
        "null.",
        '# source, target: node[edge]\n{"x": [1.0, 2.0, 3.0], "source": [1, 2], "target": [2, 3]}',
        '# source, target: node[edge]\n{"x": [1.0, 2.0, 3.0], "source": [0, 1], "target": [1, 2]}',
    ),
    "AMP814": Explanation(
        "fields over one axis have different lengths",
        "All fields over an axis have one entry for each of its elements, so within an instance their lists are equally long.",
        '# source, target: node[edge]\n{"x": [1.0, 2.0], "source": [0, 1], "target": [1]}',
        '# source, target: node[edge]\n{"x": [1.0, 2.0], "source": [0, 1], "target": [1, 0]}',
    ),
    "AMP815": Explanation(
        "a number too large for float32",
        "ampc computes in float32, whose largest number is 3.4028235e+38; larger ones would become infinity in silence. Numbers too small "
        "for it become 0, and digits beyond about seven are rounded.",
    ),
    "AMP816": Explanation(
        "a value that is NaN or infinite",
        "One such value makes a loss NaN, and one update later the whole model. `--on-nan stop` (the default) refuses the file, `--on-nan "
        "skip` leaves out the instances that hold one and counts them, `--on-nan ignore` trains on them. A value that isn't known is "
        "null, in a field declared `or none`.",
    ),
    "AMP817": Explanation(
        "elements that wait for each other",
        "`visit n in axis after f[n]` visits an element once those it names have been visited. Elements on a cycle would wait for ever, "
        "so the index fields of the `after` must not lead from an element back to itself. The elements named are exactly those on a "
        "cycle.",
        '# visit n in node after kid[n]\n{"v": [1.0, 1.0], "kid": [[1], [0]]}',
        '# visit n in node after kid[n]\n{"v": [1.0, 1.0], "kid": [[1], []]}',
    ),
    "AMP818": Explanation(
        "too large",
        "The size of the data is worked out before anything is allocated, from the file's own index, and compared with the memory that is "
        "free. A line of a JSON-lines file may have 64 MB and 64 levels of brackets.",
    ),
    "AMP820": Explanation(
        "a wrong option for a recipe",
        "`ampc data NAME --help` lists the recipes and their options with ranges and defaults.",
        "ampc data babi15 --from babi --set fold=11 -o data",
        "ampc data babi15 --from babi --set fold=10 -o data",
    ),
    "AMP821": Explanation(
        "the output folder holds something",
        "A recipe writes into a new or an empty folder, so that no file of another data set stays among its own. With `--force` its files "
        "replace those of the same name, and parts that it doesn't have are removed.",
        "ampc data list_reduction -o data",
        "ampc data list_reduction -o data --force",
    ),
    "AMP822": Explanation(
        "the original files of a recipe are missing or damaged",
        "Some data sets aren't made but converted: `--from DIR` names the folder with the files as they were published. `docs/data.md` "
        "lists them for each recipe.",
        "ampc data mnist -o data",
        "ampc data mnist --from mnist -o data",
    ),
    "AMP823": Explanation(
        "a package for this recipe isn't installed",
        "What only one recipe needs isn't installed with ampc; the message says how to add it.",
        "ampc data digits -o data",
        "pip install 'ampc[digits]'\nampc data digits -o data",
    ),
    "AMP824": Explanation(
        "a file can't be written",
        "The system refused: the disk is full, the folder doesn't exist or belongs to someone else. Files are written under a temporary "
        "name and renamed, so an older file of that name is as it was.",
    ),
    "AMP825": Explanation(
        "predictions that can't be written",
        "The end of the name chooses the form: .parquet, .arrow or .jsonl. All columns have one entry an instance.",
        "ampc run m/manifest.json --infer --data data -o predictions.csv",
        "ampc run m/manifest.json --infer --data data -o predictions.parquet",
    ),
    "AMP826": Explanation(
        "an axis without a field",
        "The data tells how many elements an axis has by the length of the fields over it; an axis that no field lies over has no length.",
        "instance:\n    axis node, edge\n    x: float[node]",
        "instance:\n    axis node\n    x: float[node]",
    ),
}

__all__ = ["CODES"]
