"""The long forms of the diagnostics of a run: settings, conditions, run folders, weights, checkpoints, and losses that blow up."""

from __future__ import annotations

from ampc.explanation import Explanation

CODES: dict[str, Explanation] = {
    "AMP701": Explanation(
        "unknown setting",
        "A setting of a run has a fixed name, whether it comes from a flag, from `--set`, from the model's `train:` block or from `ampc.toml`. "
        "`ampc run MANIFEST --print-config` lists them all with their values and where each came from. Parameters of the model (`hidden`, ...) are "
        "fixed when it is compiled, and some settings belong to the whole run and can't differ from layer to layer.",
        "ampc run manifest.json --set learning_rat=0.1",
        "ampc run manifest.json --set learning_rate=0.1",
    ),
    "AMP702": Explanation(
        "value of a setting is of the wrong type or out of range",
        "The message says what the setting accepts. Values are never rounded or clamped in silence.",
        "ampc run manifest.json --set momentum=1.5",
        "ampc run manifest.json --set momentum=0.9",
    ),
    "AMP703": Explanation(
        "the condition of `until` can't be read",
        "A condition compares values with numbers (`>=`, `<=`, `>`, `<`) and joins comparisons by `and`, `or` and parentheses; `and` binds tighter. "
        "Numbers may be written as percentages. The mark shows where reading stopped.",
        "ampc run manifest.json --until 'accuracy => 97%'",
        "ampc run manifest.json --until 'accuracy >= 97%'",
    ),
    "AMP704": Explanation(
        "no such value to watch",
        "`until` and `watch` may name `loss` and the metrics that the model declares; with `train.` before the name it "
        "is the value of the training pass, "
        "else of the validation (or of the training pass where there is no validation data).",
        "ampc run manifest.json --until 'acuracy >= 0.97'",
        "ampc run manifest.json --until 'accuracy >= 0.97'",
    ),
    "AMP705": Explanation(
        "no such layer",
        "A setting or pre-trained weights were given for a layer that the model doesn't have. A family (`Linear(...) "
        "for kind in kinds`) is named as a whole "
        "by its name, a member by `name.0`, `name.1`, and so on.",
        "ampc run manifest.json --set stepp.learning_rate=0.1",
        "ampc run manifest.json --set step.learning_rate=0.1",
    ),
    "AMP706": Explanation(
        "settings that can't be read",
        "`--set` takes `name=value` or `layer.name=value`; `ampc.toml` is TOML with a `[run]` table and `[run.layer.NAME]` tables.",
        "ampc run manifest.json --set learning_rate 0.1",
        "ampc run manifest.json --set learning_rate=0.1",
    ),
    "AMP707": Explanation(
        "the run folder can't be used",
        "A run never overwrites what is there. `--force` replaces an earlier *run folder* (one with a `config.toml`), never another kind of folder; "
        "`--resume` continues a run; without `-o` a new folder `runs/<model>-<n>` is made. While a run writes into a folder, no other may.",
        "ampc run manifest.json -o runs/first     # a second time",
        "ampc run manifest.json -o runs/second",
    ),
    "AMP708": Explanation(
        "no checkpoint to resume from",
        "`--resume` takes a run folder and loads its newest checkpoint whose files all have the sizes and SHA-256 sums "
        "that its index lists. Damaged ones are "
        "named and passed over; if none is left, the run is not started afresh in silence.",
        "ampc run manifest.json --resume runs/damaged",
        "ampc run manifest.json",
    ),
    "AMP709": Explanation(
        "the checkpoint is of another program",
        "A checkpoint belongs to one program: the same layers, shapes and graph. A model that was changed or compiled "
        "with other parameters can't resume it; "
        "its weights can be a starting point where names and shapes agree.",
        "ampc run other/manifest.json --resume runs/first",
        "ampc run other/manifest.json --init runs/first/weights.safetensors",
    ),
    "AMP710": Explanation(
        "weights don't fit the program",
        "Every tensor of the file has to have the name and shape of a parameter, and every parameter has to be there: "
        "`layer.w`, `layer.b`, `layer.table`, ... "
        "`--init-partial` takes over the names that agree and lists the others; a wrong shape is refused even then.",
        "ampc run manifest.json --init half.safetensors",
        "ampc run manifest.json --init half.safetensors --init-partial",
    ),
    "AMP711": Explanation(
        "the weights file is not sound",
        "Weights are read from safetensors files only; the file is missing, cut short, damaged, or of another format. "
        "A PyTorch `.pt` file may run code when it "
        "is read: save its state dict with `safetensors.torch.save_file` and name the map with `--names`.",
        "ampc run manifest.json --init model.pt",
        "ampc run manifest.json --init model.safetensors --names torch",
    ),
    "AMP712": Explanation(
        "the name map can't be used",
        "A name map is TOML or JSON with one text for each layer or parameter of the program: its name in the PyTorch state dict.",
        'step = ["rnn.weight", "rnn.bias"]',
        'step = "rnn"\n"head.w" = "classifier.weight"',
    ),
    "AMP714": Explanation(
        "settings exclude each other",
        "The message names both. Nothing is ignored in silence: a setting that could have no effect beside another one is refused.",
        "ampc run manifest.json --group-by-length",
        "ampc run manifest.json --group-by-length --group 100",
    ),
    "AMP715": Explanation(
        "the loss or a weight is not a finite number",
        "The mean loss of an epoch, or a weight, became infinite or not a number, most often because the learning rate is too high. "
        "With `--on-nan stop` the run fails and keeps "
        "the last checkpoint; `skip` undoes the epoch and goes on (three times in succession at most); `ignore` goes on.",
        "ampc run manifest.json --learning-rate 1000",
        "ampc run manifest.json --learning-rate 0.001 --set clip_norm=1",
    ),
    "AMP716": Explanation(
        "the run can't be resumed with these inputs",
        "A resumed run goes on in the order of the run it continues, so data, `seed` and `shuffle` have to be the same.",
        "ampc run manifest.json --resume runs/first --seed 7",
        "ampc run manifest.json --resume runs/first",
    ),
    "AMP717": Explanation(
        "no data to run on",
        "The files hold no instance, no file was found, or the program has nothing to be asked for. An empty "
        "validation set never counts as a value of 0.",
        "ampc run manifest.json --data empty/",
        "ampc run manifest.json --data data/",
    ),
    "AMP718": Explanation(
        "predictions can't be written under that name",
        "The end of the name says the form: `.parquet`, `.arrow` or `.jsonl`; `-` writes JSON lines to standard output. A file that is there is only "
        "overwritten with `--force`.",
        "ampc run manifest.json --infer --data data/ -o predictions.csv",
        "ampc run manifest.json --infer --data data/ -o predictions.parquet",
    ),
    "AMP719": Explanation(
        "flags that don't go together",
        "A flag that could have no effect beside the others is refused, and so is a run that lacks what it needs.",
        "ampc run manifest.json --infer --data data/",
        "ampc run manifest.json --infer --data data/ --init runs/first",
    ),
    "AMP720": Explanation(
        "a trace that can't be read",
        "A trace is a folder of four Parquet tables (`firings`, `taken`, `messages`, `instances`), which `ampc run --trace` writes as `trace` "
        "into the run folder. The folder holds none, or its files are damaged, of another version, or not of one trace.",
        "ampc trace data/list_reduction",
        "ampc trace runs/list_reduction-1",
    ),
    "AMP721": Explanation(
        "a profile that can't be read, or is of another program",
        "`ampc run --profile` writes `report/profile.json` into the run folder. There is none, or it is damaged, of another version, or of a program "
        "with other nodes: what was measured then says nothing of this one.",
        "ampc simulate list_reduction.ampx --profile runs/mnist_mlp-1 --data data/list_reduction",
        "ampc simulate list_reduction.ampx --profile runs/list_reduction-1 --data data/list_reduction",
    ),
    "AMP730": Explanation(
        "a file can't be written",
        "The disk is full or the folder doesn't allow it. The run stops with exit code 4; finished checkpoints stay as they were and can be resumed.",
        "ampc run manifest.json -o /read-only/run",
        "ampc run manifest.json -o runs/run",
    ),
    "AMP731": Explanation(
        "too many instances in flight",
        "A token has a fixed number of bits for the instance it belongs to. `max_active_keys` times `group` has to stay below that "
        "number; throughput stops rising "
        "long before it.",
        "ampc run manifest.json --max-active-keys 1000000",
        "ampc run manifest.json --max-active-keys 256",
    ),
    "AMP732": Explanation(
        "an instance with too many states",
        "A token has a fixed number of bits for the turns and elements it stands for, the product over the open loops and axes. Loops "
        "inside loops over long axes "
        "multiply.",
    ),
    "AMP733": Explanation(
        "not enough memory for the instances in flight",
        "Each instance in flight owns one arena, which holds all its values and gradients; its size is the largest instance's of the "
        "data. The message says how much "
        "one instance takes.",
        "ampc run manifest.json --max-active-keys 100000",
        "ampc run manifest.json --max-active-keys 64",
    ),
    "AMP734": Explanation(
        "no products of bf16 here",
        "With `precision = bf16` the factors of matrix products are rounded to bf16, for which the processor needs AMX-BF16 or AVX512-BF16 "
        "instructions and ampc needs MKL (`pip install 'ampc[mkl]'`). `ampc doctor` says what is there. Weights are float32 all the same, so a run "
        "that was trained elsewhere goes on here with `fp32`.",
        "AMPC_BLAS=openblas ampc run manifest.json --precision bf16",
        "ampc run manifest.json --precision bf16",
    ),
    "AMP741": Explanation(
        "a run that doesn't move",
        "Nothing moved for a while although instances are in flight. The notes say which nodes wait for what, with source lines, and "
        "which rows of the data are in flight. A valid model always ends, so please report it.",
    ),
    "AMP790": Explanation(
        "the cache folder can't be used",
        "Compiled kernels are kept in a private folder, because whoever can write to it decides what gets executed. It has to belong "
        "to you and be closed to others.",
        "AMPC_CACHE_DIR=/tmp ampc run manifest.json",
        "AMPC_CACHE_DIR=~/.cache/ampc ampc run manifest.json",
    ),
    "AMP799": Explanation(
        "a fault inside the engine",
        "The compiled engine found a state that can't be. That is a mistake of ampc, not of the model; please report it, with the "
        "model and the seed.",
    ),
}
