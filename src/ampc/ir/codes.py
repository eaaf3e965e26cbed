"""What `ampc explain` says of graph errors (3xx). They come from a damaged or hand-written graph or manifest, or from a bug in ampc."""

from __future__ import annotations

from ampc.explanation import Explanation

ABOUT = " A graph that ampc has compiled keeps this rule; a broken one was written or changed by hand, or shows a bug in ampc."


def _rule(title: str, text: str, wrong: str = "", right: str = "") -> Explanation:
    return Explanation(title, text + ABOUT, wrong, right)


CODES: dict[str, Explanation] = {
    "AMP300": _rule(
        "a graph beyond its limits",
        "A graph has at most 200,000 nodes, 10,000 regions and 4,096 axes, fields and layers each; names are identifiers of up to 64 characters.",
    ),
    "AMP301": _rule(
        "a declaration that does not fit",
        "Axes, fields and layers have different names; nested axes, fields and index fields name axes that are declared before; "
        "parameters have one or two extents of at least 1 and at most 8,589,934,592 numbers. A size of the model that is far too large, such as "
        "`--set hidden=2000000`, ends here too: make the layer that is named smaller.",
        "axis char of word",
        "axis word\naxis char of word",
    ),
    "AMP302": _rule(
        "a region that does not fit",
        "Regions are numbered in order, region 0 is the instance, every other lies in an earlier one and has an axis (or a "
        "number of turns, for a loop).",
        "region 1: each in 0",
        "region 1: each over atom in 0",
    ),
    "AMP303": _rule(
        "wrong numbers",
        "Ids of nodes rise, regions of nodes exist, and there is exactly one source, in region 0.",
        "%0 = source() : unit in 1",
        "%0 = source() : unit in 0",
    ),
    "AMP304": _rule(
        "an input from nowhere", "Every input reads an output of a node of the graph.", "%1 = npt relu(%7) : [4] in 0", "%1 = npt relu(%0) : [4] in 0"
    ),
    "AMP305": _rule(
        "an output that is read twice",
        "Every output feeds at most one input; a Bcast makes copies, so that gradients have a place to be summed.",
        "%2 = npt relu(%1) : [4] in 0\n%3 = npt tanh(%1) : [4] in 0",
        "%2 = bcast(%1) : [4], [4] in 0\n%3 = npt relu(%2) : [4] in 0\n%4 = npt tanh(%2:1) : [4] in 0",
    ),
    "AMP306": _rule(
        "a wrong number of inputs or outputs",
        "Each kind of node has its inputs and outputs; a Cond or Phi has as many as its test has ports.",
        "%2 = cond(%1) by within 1 : [4] in 1",
        "%2 = cond(%1) by within 1 : [4], [4] in 1",
    ),
    "AMP307": _rule(
        "a field that cannot be read here",
        "A field exists and is read whole or at a position on its own axis, which the regions around the node give.",
        "%2 = ppt lookup(%1, symbol[@1]) layer embed : [4] in 0",
        "%2 = ppt lookup(%1, symbol[@1]) layer embed : [4] in 1",
    ),
    "AMP308": _rule(
        "a test that cannot be made here",
        "A test looks at the turn of a loop around the node, at one value of a field, or at an integer "
        "computed in the same "
        "region or one around it; its cases are different values.",
        "%2 = cond(%1) by match label () : [4] in 0",
        "%2 = cond(%1) by match label (0 | else) : [4], [4] in 0",
    ),
    "AMP309": _rule(
        "a change of state that does not fit",
        "Entering goes to a loop directly inside, its turns are counted and left inside it; Flatmap "
        "and Ungroup go to a "
        "region directly inside, or to dependents beside; Group goes to the parent region or one beside.",
        "%2 = isu(%1) next 1 : [4] in 0",
        "%2 = isu(%1) next 1 : [4] in 1",
    ),
    "AMP310": _rule(
        "messages of different regions",
        "All messages that a node joins have states of the node's region.",
        "%3 = npt add(%1, %2) : [4] in 0",
        "%3 = isu(%2) leave 1 : [4] in 1\n%4 = npt add(%1, %3) : [4] in 0",
    ),
    "AMP311": _rule(
        "an operation or layer that does not exist",
        "Operations are those of the table in docs/ir.md, each in its kind of node; a PPT names a layer of the graph.",
        "%1 = npt linear(%0) : [4] in 0",
        "%1 = ppt linear(%0) layer head : [4] in 0",
    ),
    "AMP312": _rule(
        "payload types that do not fit",
        "The outputs' types follow from the operands by the operation's shape rule; rows of an axis mean the same wherever a message goes.",
        "%3 = npt add(%1, %2) : [5] in 0",
        "%3 = npt add(%1, %2) : [4] in 0",
    ),
    "AMP313": _rule(
        "a loop without an exit",
        "Every way from a loop's head back to it passes a Cond that counts the turns, and then moves to the next turn.",
        "%2 = phi(%1, %3) by first 1 : [4] in 1\n%3 = isu(%2) next 1 : [4] in 1",
        "%2 = phi(%1, %4) by first 1 : [4] in 1\n%3 = cond(%2) by within 1 : [4], [4] in 1\n%4 = isu(%3) next 1 : [4] in 1",
    ),
    "AMP314": _rule(
        "a node that waits for itself",
        "Messages go in a circle only through the head of a loop, or from an element to those that a visit puts after it.",
        "%2 = npt add(%1, %3) : [4] in 0\n%3 = npt relu(%2) : [4] in 0",
        "%2 = npt relu(%1) : [4] in 0",
    ),
    "AMP320": Explanation(
        "a graph's text that does not read",
        "The text form has one statement a line: `graph`, `parameter`, `train`, `axis`, `field`, "
        "`layer`, `region`, or a node "
        "`%id = kind(operands) ... : types in region`. docs/ir.md describes it.",
        "%1 = relu(%0) : [4] in 0",
        "%1 = npt relu(%0) : [4] in 0",
    ),
    "AMP390": Explanation(
        "an instance that does not finish",
        "Messages wait for others that never come: an index field goes in a circle where a `visit` "
        "needs an order, "
        "or a group never gets all its members. The notes name the nodes that wait, and their source lines.",
    ),
}
