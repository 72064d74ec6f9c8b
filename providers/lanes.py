"""Sixteen squared distances at once, in vector registers.

The distance between two points is one expression, here and wherever it is computed: the squared
differences of the numbers, added in the order of the fields, and then
``(weight * mismatches + 2 * flags)``, with the mismatching nominal codes and missing flags counted.
Every operation rounds on its own: nothing is fused or reordered. A bound by a box is the same
expression on the nearest point of the box: rounding keeps its order, so that no bound exceeds what
it bounds. Which boxes a search need not look into is told in single precision, rounded to the safe side.

Written in LLVM's vector types, as `providers.rng` is and for the same reason. The lane that a mask's
lowest bit stands for is lane 0.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
_SINGLES = ir.VectorType(ir.FloatType(), LANES)
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


def _penalty(builder: Any, counts: list[Any], weight: Any, kind: Any) -> Any:
    """``weight * mismatches + 2 * flags`` of both counts, by lane."""
    mismatches, flags = counts
    nominal = builder.fmul(_splat(builder, weight, kind), builder.uitofp(mismatches, kind))
    missing = builder.fmul(_constant(kind, 2.0), builder.uitofp(flags, kind))
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
            penalty = _penalty(builder, counts, weight_value, _DOUBLES)
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
def halves_apart(typingctx: Any, points: Any, codes: Any, leaf: Any, boxes: Any, code_boxes: Any, node: Any,
                 flags_from: Any, weight: Any, limits: Any, gaps: Any, row: Any) -> Any:  # fmt: skip
    """How far the points of a leaf are at least from a node's halves: (nearer half, its mask, the other's).

    Squared, in single precision, from ends that were rounded away from each other: ``points`` (float32, shape
    (2, numbers, 16)) are the leaf's numbers, rounded down and up, and ``boxes`` a tree's `rough` ones. So a
    distance may exceed what it bounds by the rounding of its own sum alone. ``codes`` (int32, shape (leaves,
    codes, 16)) and ``code_boxes`` are exact. The nearer half, 0 or 1, is so for more of the points; where
    they are equally far, by the middles. A mask says which points are at most their limit away (float32,
    shape (16,)).

    ``gaps`` (float32, shape (rows, 16)) gets the distances of the farther half in the row, if any of them is
    within its limit, and those of the nearer one in the next.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(at: int) -> Any:
            return context.make_array(signature.args[at])(context, builder, arguments[at])

        point, point_codes, box, code_box = array(0), array(1), array(3), array(4)
        leaf_value, node_value, flags_value, weight_value, row_value = (
            arguments[at] for at in (2, 5, 6, 7, 10)
        )
        zero, one, two, sixteen = (ir.Constant(_INT64, value) for value in (0, 1, 2, LANES))
        fields = cgutils.unpack_tuple(builder, point.shape)[1]
        code_fields = cgutils.unpack_tuple(builder, point_codes.shape)[1]
        nothing = _constant(_SINGLES, 0.0)
        children = [builder.add(builder.mul(node_value, two), ir.Constant(_INT64, at)) for at in (1, 2)]
        totals = [cgutils.alloca_once_value(builder, nothing) for _ in children]
        kind = ir.FunctionType(_SINGLES, [_SINGLES] * 3)  # fused where it can be: this need not be exact
        add_product = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")

        def larger(left: Any, right: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", left, right), left, right)

        def ends(data: Any, child: Any, count: Any, index: Any, kind: Any) -> tuple[Any, Any]:
            low = builder.add(builder.mul(builder.mul(child, two), count), index)
            high = builder.add(low, count)
            return tuple(_splat(builder, builder.load(builder.gep(data, [at])), kind) for at in (low, high))

        with cgutils.for_range(builder, fields) as loop:
            offset = builder.mul(loop.index, sixteen)
            down = _load(builder, point.data, offset, _SINGLES)
            up = _load(builder, point.data, builder.add(offset, builder.mul(fields, sixteen)), _SINGLES)
            for child, total in zip(children, totals, strict=True):
                low, high = ends(box.data, child, fields, loop.index, _SINGLES)
                # In this order, so that what is not a number, of a number too large, is no distance.
                gap = larger(larger(builder.fsub(low, up), builder.fsub(down, high)), nothing)
                builder.store(builder.call(add_product, [gap, gap, builder.load(total)]), total)
        with builder.if_then(builder.icmp_signed(">", code_fields, zero)):
            start = builder.mul(builder.mul(leaf_value, code_fields), sixteen)
            for child, total in zip(children, totals, strict=True):
                counts = []
                for first, last in ((zero, flags_value), (flags_value, code_fields)):
                    count = cgutils.alloca_once_value(builder, _constant(_INTEGERS, 0))
                    with cgutils.for_range_slice(builder, first, last, one) as (index, _):
                        offset = builder.add(start, builder.mul(index, sixteen))
                        codes = _load(builder, point_codes.data, offset, _INTEGERS)
                        low, high = ends(code_box.data, child, code_fields, index, _INTEGERS)
                        below = builder.icmp_signed("<", codes, low)
                        outside = builder.or_(below, builder.icmp_signed(">", codes, high))
                        counted = builder.add(builder.load(count), builder.zext(outside, _INTEGERS))
                        builder.store(counted, count)
                    counts.append(builder.load(count))
                penalty = _penalty(builder, counts, weight_value, _SINGLES)
                builder.store(builder.fadd(builder.load(total), penalty), total)
        left, right = (builder.load(total) for total in totals)

        def mask(lanes: Any) -> Any:
            return builder.bitcast(lanes, ir.IntType(LANES))

        def more_to_the_right(left: Any, right: Any) -> tuple[Any, Any]:
            """Whether more points are nearer to the right than to the left, and whether as many are."""
            counts = [
                builder.ctpop(mask(builder.fcmp_ordered("<", *pair)))
                for pair in ((right, left), (left, right))
            ]
            return builder.icmp_unsigned(">", *counts), builder.icmp_unsigned("==", *counts)

        more, equal = more_to_the_right(left, right)
        is_right = cgutils.alloca_once_value(builder, more)
        with builder.if_then(equal):  # most often within both: by the middles
            between = [cgutils.alloca_once_value(builder, nothing) for _ in children]
            with cgutils.for_range(builder, fields) as loop:
                down = _load(builder, point.data, builder.mul(loop.index, sixteen), _SINGLES)
                twice = builder.fadd(down, down)
                for child, total in zip(children, between, strict=True):
                    low, high = ends(box.data, child, fields, loop.index, _SINGLES)
                    apart = builder.fsub(builder.fadd(low, high), twice)
                    builder.store(builder.call(add_product, [apart, apart, builder.load(total)]), total)
            more, _ = more_to_the_right(*(builder.load(total) for total in between))
            builder.store(more, is_right)
        is_right = builder.load(is_right)
        near, far = builder.select(is_right, right, left), builder.select(is_right, left, right)
        most = _load(builder, array(8).data, zero, _SINGLES)
        near_mask, far_mask = (mask(builder.fcmp_ordered("<=", gap, most)) for gap in (near, far))
        has_far = builder.zext(
            builder.icmp_unsigned("!=", far_mask, ir.Constant(ir.IntType(LANES), 0)), _INT64
        )
        for gap, at in ((far, row_value), (near, builder.add(row_value, has_far))):
            target = builder.gep(array(9).data, [builder.mul(at, sixteen)])
            builder.store(gap, builder.bitcast(target, _SINGLES.as_pointer()), align=4)
        answer = [builder.zext(value, _INT64) for value in (is_right, near_mask, far_mask)]
        return context.make_tuple(builder, signature.return_type, answer)

    signature = types.UniTuple(types.int64, 3)(
        points, codes, types.int64, boxes, code_boxes, types.int64, types.int64, types.float32, limits, gaps,
        types.int64,
    )  # fmt: skip
    return signature, codegen


@intrinsic
def within(typingctx: Any, gaps: Any, row: Any, limits: Any) -> Any:
    """Which of a row's 16 distances are at most their limit, as a mask; float32, shapes (rows, 16), (16,)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        gap, limit = (
            context.make_array(signature.args[at])(context, builder, arguments[at]).data for at in (0, 2)
        )
        here = _load(builder, gap, builder.mul(arguments[1], ir.Constant(_INT64, LANES)), _SINGLES)
        most = _load(builder, limit, ir.Constant(_INT64, 0), _SINGLES)
        return _mask(builder, builder.fcmp_ordered("<=", here, most))

    return types.int64(gaps, types.int64, limits), codegen


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

        def put(at: Any, below_stays: Any, key_below: Any, place_below: Any) -> None:
            """Put it into the vector at a place, into which what is below it comes up unless it stays."""
            old_keys = _load(builder, keys.data, at, _DOUBLES)
            old_places = _load(builder, places.data, at, _INTEGERS)
            up_keys = builder.shuffle_vector(old_keys, _splat(builder, key_below, _DOUBLES), one_up)
            up_places = builder.shuffle_vector(old_places, _splat(builder, place_below, _INTEGERS), one_up)
            # The list is sorted: the lanes that stay are the first ones, and the next is the row's own.
            stays = builder.bitcast(_is_before(builder, old_keys, old_places, key, place), bits)
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
            below_stays = _is_before(builder, key_below, place_below, arguments[3], arguments[4])
            put(at, builder.zext(below_stays, bits), key_below, place_below)
        put(start, ir.Constant(bits, 1), arguments[3], arguments[4])
        return context.get_dummy_value()

    return types.void(distances, rows, types.int64, types.float64, types.int32), codegen


@intrinsic
def take_in(typingctx: Any, distances: Any, rows: Any, lane: Any, mask: Any, apart: Any, tree_rows: Any,
            start: Any, excluded: Any) -> Any:  # fmt: skip
    """Put the rows of a mask, not 0, into a lane's list of 16, as `insert` does one by one, but for one row.

    The row of the mask's lane i is ``tree_rows[start + i]``, and ``apart[i]`` how far it is. The list is in
    registers meanwhile: through memory each row would wait for the one before.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        keys, places, apart_array, row_array = (
            context.make_array(signature.args[at])(context, builder, arguments[at]) for at in (0, 1, 4, 5)
        )
        one_up = ir.Constant(ir.VectorType(_INT32, LANES), [LANES, *range(LANES - 1)])
        at = builder.mul(arguments[2], ir.Constant(_INT64, LANES))
        targets = [
            builder.bitcast(builder.gep(array.data, [at]), kind.as_pointer())
            for array, kind in ((keys, _DOUBLES), (places, _INTEGERS))
        ]
        old = [builder.load(target, align=align) for target, align in zip(targets, (8, 4), strict=True)]
        begun = builder.block
        take, other, untied, tied, taken, ended = (
            builder.append_basic_block(name) for name in ("take", "other", "untied", "tied", "taken", "ended")
        )
        builder.branch(take)

        builder.position_at_end(take)
        left = builder.phi(_INT64)
        now = [builder.phi(kind) for kind in (_DOUBLES, _INTEGERS)]
        nth = builder.cttz(left, ir.Constant(ir.IntType(1), 1))
        rest = builder.and_(left, builder.sub(left, ir.Constant(_INT64, 1)))
        row = builder.load(builder.gep(row_array.data, [builder.add(arguments[6], nth)]))
        is_excluded = builder.icmp_signed("==", row, arguments[7])
        builder.cbranch(is_excluded, taken, other)

        builder.position_at_end(other)
        key = _splat(builder, builder.load(builder.gep(apart_array.data, [nth])), _DOUBLES)
        place = _splat(builder, row, _INTEGERS)
        # The first one, which has none below it, gets the row itself.
        up = [builder.shuffle_vector(one, new, one_up) for one, new in zip(now, (key, place), strict=True)]
        stays = builder.fcmp_ordered("<", now[0], key)
        own = builder.fcmp_ordered("<", up[0], key)
        ties = builder.bitcast(builder.fcmp_ordered("==", now[0], key), ir.IntType(LANES))
        builder.cbranch(builder.icmp_signed("!=", ties, ir.Constant(ir.IntType(LANES), 0)), tied, untied)

        builder.position_at_end(untied)
        above = builder.select(builder.fcmp_ordered(">", up[0], key), up[0], key)
        put = [
            builder.select(builder.fcmp_ordered("<", now[0], above), now[0], above),
            builder.select(stays, now[1], builder.select(own, place, up[1])),
        ]
        builder.branch(taken)

        builder.position_at_end(tied)
        stays, own = (_is_before(builder, some[0], some[1], key, place) for some in (now, up))
        put_tied = [
            builder.select(stays, one, builder.select(own, new, below))
            for one, new, below in zip(now, (key, place), up, strict=True)
        ]
        builder.branch(taken)

        builder.position_at_end(taken)
        got = [builder.phi(kind) for kind in (_DOUBLES, _INTEGERS)]
        for which in range(2):
            for value, block in ((now[which], take), (put[which], untied), (put_tied[which], tied)):
                got[which].add_incoming(value, block)
            now[which].add_incoming(old[which], begun)
            now[which].add_incoming(got[which], taken)
        left.add_incoming(arguments[3], begun)
        left.add_incoming(rest, taken)
        builder.cbranch(builder.icmp_signed("!=", rest, ir.Constant(_INT64, 0)), take, ended)

        builder.position_at_end(ended)
        for target, value, align in zip(targets, got, (8, 4), strict=True):
            builder.store(value, target, align=align)
        return context.get_dummy_value()

    signature = types.void(
        distances, rows, types.int64, types.int64, apart, tree_rows, types.int64, types.int32
    )
    return signature, codegen


@intrinsic
def nearer_points(typingctx: Any, apart: Any, at: Any, mask: Any) -> Any:
    """How many points of a mask come before the one in lane `at`; of equally far ones the lower lane does.

    ``apart`` (float64, shape (16,)) has how far they are.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        keys = _load(builder, data, ir.Constant(_INT64, 0), _DOUBLES)
        key = _splat(builder, builder.load(builder.gep(data, [arguments[1]])), _DOUBLES)
        nearer, tied = (_mask(builder, builder.fcmp_ordered(how, keys, key)) for how in ("<", "=="))
        one = ir.Constant(_INT64, 1)
        lower = builder.sub(builder.shl(one, arguments[1]), one)
        before = builder.or_(nearer, builder.and_(tied, lower))
        return builder.ctpop(builder.and_(before, arguments[2]))

    return types.int64(apart, types.int64, types.int64), codegen


@intrinsic
def lesser_rows(typingctx: Any, rows: Any, lane: Any, count: Any, row: Any) -> Any:
    """How many of the first so many rows in a lane's list of 16 are less than a row."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        start = builder.mul(arguments[1], ir.Constant(_INT64, LANES))
        listed = _load(builder, data, start, _INTEGERS)
        less = _mask(builder, builder.icmp_signed("<", listed, _splat(builder, arguments[3], _INTEGERS)))
        one = ir.Constant(_INT64, 1)
        first = builder.sub(builder.shl(one, arguments[2]), one)
        return builder.ctpop(builder.and_(less, first))

    return types.int64(rows, types.int64, types.int64, types.int32), codegen


def _is_before(builder: Any, some_keys: Any, some_places: Any, key: Any, place: Any) -> Any:
    """Whether (distance, row) comes before another, lane by lane."""
    equal = builder.fcmp_ordered("==", some_keys, key)
    earlier = builder.and_(equal, builder.icmp_signed("<", some_places, place))
    return builder.or_(builder.fcmp_ordered("<", some_keys, key), earlier)


@intrinsic
def lowest_lane(typingctx: Any, mask: Any) -> Any:
    """The lane of a mask's lowest bit; the mask is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen
