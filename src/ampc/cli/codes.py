"""The long forms of AMP6xx (manifest) and AMP9xx (command line, files, system)."""

from ampc.explanation import Explanation

CODES: dict[str, Explanation] = {
    "AMP601": Explanation(
        "no manifest there",
        "`ampc run` and `ampc view` take `manifest.json` or the folder that `ampc compile` wrote.",
        "ampc run list_reduction.amp",
        "ampc compile list_reduction.amp\nampc run list_reduction.ampx --data data/list_reduction",
    ),
    "AMP602": Explanation(
        "manifest too large or nested too deep",
        "A manifest has at most 64 MiB and nests at most 64 deep. The compiler stays far below both; a file that does not is damaged or hostile.",
    ),
    "AMP603": Explanation(
        "manifest is not JSON",
        "The file is cut off, is not UTF-8, or holds what JSON readers disagree on: a key twice in one object, `NaN`, `Infinity`. Compile "
        "the model again.",
        '{"format": "ampc-manifest", "format": "other"}',
        '{"format": "ampc-manifest"}',
    ),
    "AMP604": Explanation("not an ampc manifest", 'The file is JSON, but `format` is not "ampc-manifest". Perhaps another file was named.'),
    "AMP605": Explanation("manifest of another version", "The manifest was written by another version of ampc. Compile the model again with "
    "this one."),
    "AMP606": Explanation(
        "manifest with an unknown, missing or mistyped field",
        "Every field is checked against the schema (`ampc check --schema` prints it). The message names the place: `$.graph.nodes[3].op` is "
        "the field `op` of the "
        "fourth node.",
    ),
    "AMP607": Explanation(
        "manifest with a value out of range",
        "Names are letters, digits and `_`; sizes, counts and references stay in their ranges. A manifest that the compiler wrote always does.",
    ),
    "AMP608": Explanation("manifest with an unknown operation", "Operations are a closed set, by name. A manifest can't bring its own: it "
    "holds no code."),
    "AMP609": Explanation(
        "manifest whose graph is not valid",
        "The graph breaks one of the rules that `ampc.ir.verify` holds, such as that each output feeds one input. Compile the model again.",
    ),
    "AMP610": Explanation("manifest whose placement does not fit its graph", "Every node has one device, and all nodes that use a layer "
    "have the same one."),
    "AMP611": Explanation("manifest whose placement does not fit its target", "`placement.devices` lists the devices of `target` by name, "
    "in their order."),
    "AMP690": Explanation("a file cannot be written", "The system refused: no space, no permission, no such folder. What was there before "
    "is still there."),
    "AMP900": Explanation("no such error code", "`ampc explain` without a code lists them all.", "ampc explain AMP000", "ampc explain AMP501"),
    "AMP901": Explanation(
        "wrong use of the command line",
        "A verb or option that does not exist, a value that is missing or of the wrong kind. `ampc VERB --help` lists what there is.",
        "ampc complie model.amp",
        "ampc compile model.amp",
    ),
    "AMP902": Explanation(
        "wrong form of `--set`", "`--set` takes a name, `=` and a value, and may be given several times.", "ampc compile m.amp --set hidden 64",
        "ampc compile m.amp --set hidden=64",
    ),
    "AMP903": Explanation(
        "options that exclude each other", "One of the options makes the other meaningless, so ampc asks rather than ignore one.",
        "ampc view m.ampx --target cpu-4", "ampc view m.amp --target cpu-4",
    ),
    "AMP904": Explanation(
        "unknown kind of picture", "The ending of the file says what to write: `.dot`, `.svg`, `.png`, `.pdf`.", "ampc view m.amp -o m.jpg",
        "ampc view m.amp -o m.png",
    ),
    "AMP905": Explanation("unknown detail of a picture", "`paper` draws every node, `layers` leaves out those that only move messages."),
    "AMP906": Explanation(
        "nothing there that draws",
        "SVG and PNG are drawn by Graphviz's `dot` if it is on the PATH, else by `graphviz-pure`, which pip installs with ampc. DOT needs neither.",
        "ampc view m.amp -o m.svg", "ampc view m.amp -o m.dot",
    ),
    "AMP907": Explanation("the program that draws failed", "Write DOT and draw it with another Graphviz."),
    "AMP908": Explanation(
        "a window of time that can't be read", "A window is `A:B`, in seconds from the beginning of the pass; either may be left out.",
        "ampc trace runs/first --window 5", "ampc trace runs/first --window 5:5.1 -o moment.perfetto-trace",
    ),
    "AMP909": Explanation("no such data set", "`ampc data` without a name lists them all.", "ampc data listreduction", "ampc data list_reduction"),
    "AMP910": Explanation(
        "a model cannot be read", "The file is not there, is a folder, or may not be read. A bare name that is no file may be a bundled model.",
        "ampc compile list_reducton", "ampc compile list_reduction",
    ),
    "AMP911": Explanation("a model that is too large", "A model has at most 1 MiB of text."),
    "AMP912": Explanation("a model that is not UTF-8", "Models are text in UTF-8. Was another file named, or one saved in an old encoding?"),
    "AMP913": Explanation("no such stage", "Stages are parse, check, lower, passes and place."),
    "AMP915": Explanation(
        "a trace of another program or placement",
        "`ampc view --load` finds the nodes of a trace by the segments of the placement that ran. The program that is drawn has to be the one that "
        "ran, placed as it ran: on as many cores as the run had workers, or on the target and by the strategy that were simulated.",
        "ampc view list_reduction.ampx --load runs/mnist-1", "ampc view mnist.ampx --load runs/mnist-1",
    ),
    "AMP920": Explanation(
        "something else is where the output should go",
        "`ampc compile` replaces a folder that it wrote before from a file of the same name, and an empty one; one that it wrote from another file "
        "only with `--force`. It leaves everything else alone.",
        "ampc compile m.amp -o ~", "ampc compile m.amp -o ~/m.ampx",
    ),
    "AMP921": Explanation("a folder cannot be written", "The system refused: no space, no permission. What was there before is still there."),
    "AMP925": Explanation(
        "charts need matplotlib", "Gantt pictures and curves are drawn by matplotlib, which is an extra, since no run needs it.",
        "pip install ampc", "pip install 'ampc[plots]'",
    ),
    "AMP931": Explanation("out of memory", "The system had no memory left. Use a smaller model, fewer `max_active_keys`, or less data at a time."),
    "AMP932": Explanation("the system refused", "No space is left, or too many files are open."),
    "AMP970": Explanation(
        "a bug in ampc",
        "No input should lead to this. The report that was written holds the command and what happened; please pass it on.",
    ),
}
