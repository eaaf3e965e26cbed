"""The long forms of AMP5xx: targets and placement."""

from ampc.explanation import Explanation

CODES: dict[str, Explanation] = {
    "AMP501": Explanation(
        "no such target",
        "`--target` takes the name of a target that comes with ampc (`cpu-1`, `cpu-4`, `fpga_1tflops`, ...; `ampc doctor` lists them) "
        "or the path of a `.toml` file, which is told from a name by its ending.",
        "ampc compile model.amp --target cpu4",
        "ampc compile model.amp --target cpu-4",
    ),
    "AMP502": Explanation(
        "not a target file",
        "A target is UTF-8 text in TOML of at most 1 MiB: a `name`, one `[[devices]]` table for each device, and a `[links]` table.",
        'name = "two\n',
        'name = "two"\n\n[[devices]]\nname = "core"\ncount = 2\nkind = "cpu"\nmatrix_flops_per_s = { fp32 = 80e9 }\nvector_flops_per_s = 80e9\n'
        'memory_bytes = 2_000_000_000\n'
        'message_overhead_s = 0.2e-6\n\n[links]\ntopology = "shared"\nbytes_per_s = 8e9\nlatency_s = 0.5e-6\n',
    ),
    "AMP503": Explanation(
        "unknown, missing or mistyped key in a target file",
        "Every key carries its unit (`memory_bytes`, `latency_s`), and none may be misspelt: a key that is ignored would make the "
        "estimate wrong in silence.",
        "memory_mb = 2000",
        "memory_bytes = 2_000_000_000",
    ),
    "AMP504": Explanation(
        "impossible value in a target file",
        "A device without memory, a link that carries nothing or answers after hours is no hardware; placing and simulating on it would "
        "divide by zero or never end.",
        "bytes_per_s = 0",
        "bytes_per_s = 8e9",
    ),
    "AMP505": Explanation(
        "a device that no link reaches",
        "With the topology `links` every link is listed, and messages take the fewest hops over them. A device that cannot be reached, or "
        "from which nothing leads back, would wait for ever.",
        '[[links.link]]\nfrom = "a"\nto = "b"          # and nothing leads to `c`',
        '[[links.link]]\nfrom = "a"\nto = "b"\n\n[[links.link]]\nfrom = "b"\nto = "c"',
    ),
    "AMP506": Explanation(
        "a device states no rate for the precision",
        "An estimate for bf16 or fp16 needs the rate of matrix products in that precision on every device.",
        "matrix_flops_per_s = { fp32 = 1e12 }                 # estimated with bf16",
        "matrix_flops_per_s = { fp32 = 1e12, bf16 = 2e12 }",
    ),
    "AMP510": Explanation(
        "no such placement strategy",
        "`round_robin` deals layers to devices in turn, `balanced` makes the busiest device as fast as it can, `manual` takes each "
        "layer's `device`.",
        "ampc compile model.amp --strategy greedy",
        "ampc compile model.amp --strategy balanced",
    ),
    "AMP511": Explanation(
        "a layer asks for a device that the target lacks",
        "With `--strategy manual` each layer's `device` names a device of the target; `ampc doctor` lists the bundled targets and `ampc "
        "compile --emit placement` "
        "shows device names.",
        'head = Linear(hidden, classes, device = "core:7")     # --target cpu-2',
        'head = Linear(hidden, classes, device = "core:1")     # --target cpu-2',
    ),
    "AMP512": Explanation(
        "manual placement leaves a layer without a device",
        "With `--strategy manual` every layer says where it goes. Leave the choice to the compiler with `--strategy balanced`, which "
        "keeps the devices that are given.",
        "head = Linear(hidden, classes)",
        'head = Linear(hidden, classes, device = "core:1")',
    ),
    "AMP513": Explanation(
        "the program does not fit the devices' memory",
        "Weights, their gradients and the optimiser's state of each layer must fit the device that owns the layer, together with the "
        "other layers there and with the values, and their gradients, that its nodes give for all instances in flight (`max_active_keys`). "
        "The message says how much is missing on which device, the notes which layers are largest, the help what would make it fit: more "
        "devices, an optimiser without state, fewer instances in flight, or a Linear split by columns.",
        "big = Linear(2000, 2000)                 # --target fpga_tiny_memory: 5 MB a device",
        "big = Linear(2000, 2000, columns = 16)   # a sixteenth of it on each",
    ),
    "AMP514": Explanation(
        "`--at` names a layer that the program lacks",
        "`--at LAYER=DEVICE` puts a layer of the program on a device of the target. A plain name stands for all copies of a layer and all members "
        "of a family; `step~1` and `message.2` name one of them.",
        "ampc place model.amp --at stop=core:1",
        "ampc place model.amp --at step=core:1",
    ),
    "AMP515": Explanation(
        "layers that one product takes together ask for different devices",
        "Where a member of a family is picked for each element of an axis, all members are multiplied by one node, which is on one device.",
        "ampc place qm9_ggsnn --at message.1=core:1 --at message.2=core:2",
        "ampc place qm9_ggsnn --at message=core:1",
    ),
    "AMP516": Explanation(
        "a layer that can't be split or replicated as asked",
        "`--split LAYER=N` splits a `Linear` by its columns into N equal parts, `--replicas LAYER=N` gives any layer N copies. Both are for layers "
        "that the program has not split or replicated itself.",
        "ampc place list_reduction --split step=3        # 128 columns",
        "ampc place list_reduction --split step=4",
    ),
}
