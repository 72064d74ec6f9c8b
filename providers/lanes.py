"""Sixteen squared distances at once, in vector registers.

The distance between two points is one expression, here and wherever it is computed: the squared
differences of the numbers, added in the order of the fields, and then
``(weight * mismatches + 2 * flags)``, with the mismatching nominal codes and missing flags counted.
Every operation rounds on its own: nothing is fused or reordered. A bound by a box is the same
expression on the nearest point of the box: rounding keeps its order, so that no bound exceeds what
it bounds.

Written in LLVM's vector types, as `providers.rng` is and for the same reason. The lane that a mask's
lowest bit stands for is lane 0.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
SPARE = 8
"""Places behind the boxes, which are read in vectors of so many."""

_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES))


def _constant(kind: Any, value: float) -> Any:
    return ir.Constant(kind, [value] * LANES)


def _load(builder: Any, data: Any, offset: Any, kind: Any) -> Any:
    start = builder.bitcast(builder.gep(data, [offset]), kind.as_pointer())
    return builder.load(start, align=8 if kind is _DOUBLES else 4)


def _penalty(builder: Any, mismatches: Any, flags: Any, weight: Any) -> Any:
    """``weight * mismatches + 2 * flags``, by lane."""
    nominal = builder.fmul(_splat(builder, weight, _DOUBLES), builder.uitofp(mismatches, _DOUBLES))
    missing = builder.fmul(_constant(_DOUBLES, 2.0), builder.uitofp(flags, _DOUBLES))
    return builder.fadd(nominal, missing)


def _mask(builder: Any, lanes: Any) -> Any:
    return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), _INT64)


@intrinsic
def near_points(typingctx: Any, numbers: Any, codes: Any, leaf: Any, other_numbers: Any,
                other_codes: Any, other_leaf: Any, lane: Any, flags_from: Any, weight: Any, bound: Any,
                out: Any) -> Any:  # fmt: skip
    """Which points of a leaf are at most `bound` from the point in a lane of another, as a mask.

    ``numbers`` float64 and ``codes`` int32, shape (leaves, fields, 16); codes from ``flags_from`` on
    are missing flags. ``out`` (float64, shape (16,)) gets the squared distances.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(at: int) -> Any:
            return context.make_array(signature.args[at])(context, builder, arguments[at])

        points, point_codes, others, other_code_blocks = array(0), array(1), array(3), array(4)
        leaf_value, other_value, lane_value, flags_value, weight_value, bound_value = (
            arguments[at] for at in (2, 5, 6, 7, 8, 9)
        )
        sixteen = ir.Constant(_INT64, LANES)
        fields = cgutils.unpack_tuple(builder, points.shape)[1]
        code_fields = cgutils.unpack_tuple(builder, point_codes.shape)[1]
        total = cgutils.alloca_once_value(builder, _constant(_DOUBLES, 0.0))
        start = builder.mul(builder.mul(leaf_value, fields), sixteen)
        other = builder.add(builder.mul(builder.mul(other_value, fields), sixteen), lane_value)
        with cgutils.for_range(builder, fields) as loop:
            step = builder.mul(loop.index, sixteen)
            query = builder.load(builder.gep(others.data, [builder.add(other, step)]))
            point = _load(builder, points.data, builder.add(start, step), _DOUBLES)
            apart = builder.fsub(_splat(builder, query, _DOUBLES), point)
            builder.store(builder.fadd(builder.load(total), builder.fmul(apart, apart)), total)
        zero = ir.Constant(_INT64, 0)
        with builder.if_then(builder.icmp_signed(">", code_fields, zero)):
            start = builder.mul(builder.mul(leaf_value, code_fields), sixteen)
            other = builder.add(builder.mul(builder.mul(other_value, code_fields), sixteen), lane_value)
            counts = []
            for first, last in ((zero, flags_value), (flags_value, code_fields)):
                count = cgutils.alloca_once_value(builder, _constant(_INTEGERS, 0))
                with cgutils.for_range_slice(builder, first, last, ir.Constant(_INT64, 1)) as (index, _):
                    step = builder.mul(index, sixteen)
                    query = builder.load(builder.gep(other_code_blocks.data, [builder.add(other, step)]))
                    point = _load(builder, point_codes.data, builder.add(start, step), _INTEGERS)
                    differs = builder.icmp_signed("!=", _splat(builder, query, _INTEGERS), point)
                    counted = builder.add(builder.load(count), builder.zext(differs, _INTEGERS))
                    builder.store(counted, count)
                counts.append(builder.load(count))
            penalty = _penalty(builder, counts[0], counts[1], weight_value)
            builder.store(builder.fadd(builder.load(total), penalty), total)
        distances = builder.load(total)
        target = builder.bitcast(array(10).data, _DOUBLES.as_pointer())
        builder.store(distances, target, align=8)
        near = builder.fcmp_ordered("<=", distances, _splat(builder, bound_value, _DOUBLES))
        return _mask(builder, near)

    signature = types.int64(
        numbers, codes, types.int64, other_numbers, other_codes, types.int64, types.int64, types.int64,
        types.float64, types.float64, out,
    )  # fmt: skip
    return signature, codegen


@intrinsic
def in_reach(typingctx: Any, numbers: Any, codes: Any, leaf: Any, boxes: Any, code_boxes: Any, node: Any,
             flags_from: Any, weight: Any, bounds: Any) -> Any:  # fmt: skip
    """Which points of a leaf are at most their bound from a node's box, as a mask.

    ``bounds`` (float64, shape (16,)) holds each lane's own.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(at: int) -> Any:
            return context.make_array(signature.args[at])(context, builder, arguments[at])

        points, point_codes, box, code_box = array(0), array(1), array(3), array(4)
        leaf_value, node_value, flags_value, weight_value = (arguments[at] for at in (2, 5, 6, 7))
        sixteen, two = ir.Constant(_INT64, LANES), ir.Constant(_INT64, 2)
        zero = ir.Constant(_INT64, 0)
        fields = cgutils.unpack_tuple(builder, points.shape)[1]
        code_fields = cgutils.unpack_tuple(builder, point_codes.shape)[1]
        nothing = _constant(_DOUBLES, 0.0)
        total = cgutils.alloca_once_value(builder, nothing)

        def ends(data: Any, count: Any, index: Any, kind: Any) -> tuple[Any, Any]:
            low = builder.add(builder.mul(builder.mul(node_value, two), count), index)
            high = builder.add(low, count)
            return tuple(_splat(builder, builder.load(builder.gep(data, [at])), kind) for at in (low, high))

        start = builder.mul(builder.mul(leaf_value, fields), sixteen)
        with cgutils.for_range(builder, fields) as loop:
            offset = builder.add(start, builder.mul(loop.index, sixteen))
            point = _load(builder, points.data, offset, _DOUBLES)
            low, high = ends(box.data, fields, loop.index, _DOUBLES)
            below, above = builder.fsub(low, point), builder.fsub(point, high)
            gap = builder.select(builder.fcmp_ordered(">", below, above), below, above)
            gap = builder.select(builder.fcmp_ordered(">", gap, nothing), gap, nothing)
            builder.store(builder.fadd(builder.load(total), builder.fmul(gap, gap)), total)
        with builder.if_then(builder.icmp_signed(">", code_fields, zero)):
            start = builder.mul(builder.mul(leaf_value, code_fields), sixteen)
            counts = []
            for first, last in ((zero, flags_value), (flags_value, code_fields)):
                count = cgutils.alloca_once_value(builder, _constant(_INTEGERS, 0))
                with cgutils.for_range_slice(builder, first, last, ir.Constant(_INT64, 1)) as (index, _):
                    offset = builder.add(start, builder.mul(index, sixteen))
                    point = _load(builder, point_codes.data, offset, _INTEGERS)
                    low, high = ends(code_box.data, code_fields, index, _INTEGERS)
                    below = builder.icmp_signed("<", point, low)
                    outside = builder.or_(below, builder.icmp_signed(">", point, high))
                    counted = builder.add(builder.load(count), builder.zext(outside, _INTEGERS))
                    builder.store(counted, count)
                counts.append(builder.load(count))
            penalty = _penalty(builder, counts[0], counts[1], weight_value)
            builder.store(builder.fadd(builder.load(total), penalty), total)
        bounds_value = _load(builder, array(8).data, zero, _DOUBLES)
        return _mask(builder, builder.fcmp_ordered("<=", builder.load(total), bounds_value))

    signature = types.int64(
        numbers, codes, types.int64, boxes, code_boxes, types.int64, types.int64, types.float64, bounds
    )
    return signature, codegen


@intrinsic
def box_gaps(typingctx: Any, boxes: Any, node: Any, query_boxes: Any, query_node: Any) -> Any:
    """How far a box is from two, a node's halves: (gap, gap, between the middles, between the middles).

    ``boxes`` and ``query_boxes`` float64, shape (nodes, 2, fields), with `SPARE` places behind them. Of
    the numbers alone: squares, added in no certain order, those between the middles four times as much.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        box, query = (
            context.make_array(signature.args[at])(context, builder, arguments[at]) for at in (0, 2)
        )
        half, some = ir.VectorType(ir.DoubleType(), SPARE), ir.VectorType(_INT64, SPARE)
        one, two, eight = (ir.Constant(_INT64, value) for value in (1, 2, SPARE))
        nothing = ir.Constant(half, [0.0] * SPARE)
        fields = cgutils.unpack_tuple(builder, box.shape)[2]
        stride = builder.mul(two, fields)
        start = builder.mul(builder.add(builder.mul(two, arguments[1]), one), stride)
        query_start = builder.mul(arguments[3], stride)
        sums = [cgutils.alloca_once_value(builder, nothing) for _ in range(4)]

        def load(data: Any, offset: Any) -> Any:
            return builder.load(builder.bitcast(builder.gep(data, [offset]), half.as_pointer()), align=8)

        def larger(left: Any, right: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", left, right), left, right)

        pieces = builder.sdiv(builder.add(fields, ir.Constant(_INT64, SPARE - 1)), eight)
        with cgutils.for_range(builder, pieces) as loop:
            first = builder.mul(loop.index, eight)
            count = builder.sub(fields, first)
            undefined = ir.Constant(some, ir.Undefined)
            counts = builder.insert_element(undefined, count, ir.Constant(_INT32, 0))
            zeros = ir.Constant(ir.VectorType(_INT32, SPARE), [0] * SPARE)
            counts = builder.shuffle_vector(counts, undefined, zeros)
            is_field = builder.icmp_signed("<", ir.Constant(some, list(range(SPARE))), counts)
            at = builder.add(query_start, first)
            low, high = load(query.data, at), load(query.data, builder.add(at, fields))
            middle = builder.fadd(low, high)
            for child in range(2):
                at = builder.add(builder.add(start, first), builder.mul(ir.Constant(_INT64, child), stride))
                other_low, other_high = load(box.data, at), load(box.data, builder.add(at, fields))
                gap = larger(builder.fsub(other_low, high), builder.fsub(low, other_high))
                between = builder.fsub(builder.fadd(other_low, other_high), middle)
                for place, apart in ((child, larger(gap, nothing)), (2 + child, between)):
                    squared = builder.select(is_field, builder.fmul(apart, apart), nothing)
                    builder.store(builder.fadd(builder.load(sums[place]), squared), sums[place])
        totals = []
        for place in range(4):
            total, width = builder.load(sums[place]), SPARE
            while width > 1:
                width //= 2
                parts = [
                    ir.Constant(ir.VectorType(_INT32, width), list(range(from_, from_ + width)))
                    for from_ in (0, width)
                ]
                total = builder.fadd(*(builder.shuffle_vector(total, total, part) for part in parts))
            totals.append(builder.extract_element(total, ir.Constant(_INT32, 0)))
        return context.make_tuple(builder, signature.return_type, totals)

    return types.UniTuple(types.float64, 4)(boxes, types.int64, query_boxes, types.int64), codegen


@intrinsic
def insert(typingctx: Any, distances: Any, rows: Any, lane: Any, distance: Any, row: Any) -> Any:
    """Put a row into a lane's list, which is sorted by (distance, row); the last one falls out.

    ``distances`` float64 and ``rows`` int32, shape (lanes, a multiple of 16).
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(at: int) -> Any:
            return context.make_array(signature.args[at])(context, builder, arguments[at])

        keys, places = array(0), array(1)
        one, sixteen = ir.Constant(_INT64, 1), ir.Constant(_INT64, LANES)
        length = cgutils.unpack_tuple(builder, keys.shape)[1]
        start = builder.mul(arguments[2], length)
        key, place = _splat(builder, arguments[3], _DOUBLES), _splat(builder, arguments[4], _INTEGERS)
        one_up = ir.Constant(ir.VectorType(_INT32, LANES), [LANES, *range(LANES - 1)])
        bits, lanes = ir.IntType(LANES), ir.VectorType(ir.IntType(1), LANES)

        def is_before(some_keys: Any, some_places: Any, key: Any, place: Any) -> Any:
            equal = builder.fcmp_ordered("==", some_keys, key)
            earlier = builder.and_(equal, builder.icmp_signed("<", some_places, place))
            return builder.or_(builder.fcmp_ordered("<", some_keys, key), earlier)

        def put(at: Any, below_stays: Any, key_below: Any, place_below: Any) -> None:
            """Put it into the vector at a place, into which what is below it comes up unless it stays."""
            old_keys = _load(builder, keys.data, at, _DOUBLES)
            old_places = _load(builder, places.data, at, _INTEGERS)
            up_keys = builder.shuffle_vector(old_keys, _splat(builder, key_below, _DOUBLES), one_up)
            up_places = builder.shuffle_vector(old_places, _splat(builder, place_below, _INTEGERS), one_up)
            # The list is sorted: the lanes that stay are the first ones, and the next is the row's own.
            stays = builder.bitcast(is_before(old_keys, old_places, key, place), bits)
            own = builder.or_(builder.shl(stays, ir.Constant(bits, 1)), below_stays)
            stays, own = builder.bitcast(stays, lanes), builder.bitcast(own, lanes)
            new_keys = builder.select(stays, old_keys, builder.select(own, key, up_keys))
            new_places = builder.select(stays, old_places, builder.select(own, place, up_places))
            target = builder.bitcast(builder.gep(keys.data, [at]), _DOUBLES.as_pointer())
            builder.store(new_keys, target, align=8)
            target = builder.bitcast(builder.gep(places.data, [at]), _INTEGERS.as_pointer())
            builder.store(new_places, target, align=4)

        others = builder.sub(builder.sdiv(length, sixteen), one)
        with cgutils.for_range(builder, others) as loop:  # from the last vector on
            back = builder.mul(builder.add(loop.index, one), sixteen)
            at = builder.add(start, builder.sub(length, back))
            before = builder.sub(at, one)
            key_below = builder.load(builder.gep(keys.data, [before]))
            place_below = builder.load(builder.gep(places.data, [before]))
            below_stays = is_before(key_below, place_below, arguments[3], arguments[4])
            put(at, builder.zext(below_stays, bits), key_below, place_below)
        put(start, ir.Constant(bits, 1), arguments[3], arguments[4])
        return context.get_dummy_value()

    return types.void(distances, rows, types.int64, types.float64, types.int32), codegen


@intrinsic
def lowest_lane(typingctx: Any, mask: Any) -> Any:
    """The lane of a mask's lowest bit; the mask is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen
