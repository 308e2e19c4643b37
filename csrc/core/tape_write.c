/* tape_write.c: checks of in-place writes, and the history of a tensor that is written to. */
#include "own.h"
#include "tape_node.h"
#include "tape_view.h"

/* A leaf's values are what the user set them to: the tape cannot represent a write to it. */
static bool shares_leaf(const tc_tensor *tensor)
{
    if (!tensor->node) return tensor->requires_grad;
    for (const tc_node *node = tensor->node; node && node->is_view; node = node->edges[0].node)
        if (node->edges[0].leaf) return true;
    return false;
}

tc_status tc_fail_cast(tc_error *err)
{
    return tc_fail(
        err, TC_ERROR_STATE,
        "this is a parameter's cast to half precision: in a forward under autocast, what is written to it would be lost; write to "
        "parameters outside of calls of modules (in training_step, or a hook of the training), or register a buffer instead");
}

/* The axis along which the tensor repeats its elements, or -1. */
static int repeated_axis(const tc_tensor *tensor)
{
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->strides[i] == 0 && tensor->shape[i] > 1 && tensor->numel > 1) return i;
    return -1;
}

static tc_status check_write(const tc_tensor *tensor, tc_error *err)
{
    const int axis = repeated_axis(tensor);
    if (axis >= 0)
        return tc_fail(
            err, TC_ERROR_VALUE,
            "this tensor repeats its elements along axis %d (expand), so that a write to one would be seen in others; write to a "
            "clone()",
            axis);
    if (tensor->storage->is_cast) return tc_fail_cast(err);
    if (!tensor->storage->writable)
        return tc_fail(err, TC_ERROR_VALUE, "this tensor shares read-only memory and cannot be written in place; write to a clone()");
    if (tc_grad_enabled() && shares_leaf(tensor))
        return tc_fail(
            err, TC_ERROR_STATE,
            "a leaf tensor that requires a gradient, or a view of one, cannot be written in place; use tensor.data, or with tc.no_grad():");
    return TC_OK;
}

/* Gives the write to `tensor` a new version, and returns it. A tensor that was up to date stays so; others with a history that share the
 * memory do not, except where the caller knows what they do: under no_grad(), or to a detached tensor or a view of one.
 * Of two threads that write to parts of one result, the second one finds what the first one changed. */
static unsigned raise_version(tc_tensor *tensor)
{
    tc_storage *storage = tensor->storage;
    tc_lock_take(&tc_replacing);
    const unsigned traced = atomic_load_explicit(&storage->traced, memory_order_acquire);
    const unsigned changed = atomic_load_explicit(&storage->changed, memory_order_acquire);
    const bool stays = !tc_tape_is_stale(tensor);
    const unsigned now = tc_storage_change(storage, tc_grad_enabled() && !tc_tape_is_detached(tensor));
    tc_lock_give(&tc_replacing);
    if (tensor->version == TC_NEVER_STALE) return now;
    if (!tensor->wrote || tensor->version < changed) {
        tensor->traced_before = traced;
        tensor->changed_before = changed;
    }
    tensor->wrote = stays;
    if (!stays) return now;
    tensor->version = now;
    tensor->written = true;
    return now;
}

/* The history of the values of this version. `node`: NULL where they have none. */
static void replace_history(tc_tensor *target, tc_node *node, int output, unsigned version)
{
    tc_node *before = target->node;
    atomic_uint *traced = &target->storage->traced;
    if (node)
        tc_set_history(target, node, output);
    else
        target->node = NULL;
    target->version = version;
    target->written = true;
    unsigned last = atomic_load_explicit(traced, memory_order_acquire);
    while (last < version && !atomic_compare_exchange_weak(traced, &last, version)) continue;
    if (before) tc_node_release(before);
}

tc_status tc_tensor_begin_write(tc_tensor *tensor, tc_error *err)
{
    TC_TRY(check_write(tensor, err));
    raise_version(tensor);
    tc_tape_write_base(tensor);
    return TC_OK;
}

tc_status tc_node_make_for(tc_node **out, const tc_tensor *target, const tc_record *record, tc_error *err)
{
    tc_node *node = NULL;
    TC_TRY(tc_node_make(&node, record, err));
    const tc_status status = tc_node_retain_gradient(node, 0, target, err);
    if (status == TC_OK)
        *out = node;
    else
        tc_node_release(node);
    return status;
}

tc_status tc_tape_begin_write(tc_tensor *target, const tc_record *record, tc_error *err)
{
    tc_node *node = NULL;
    TC_TRY(check_write(target, err));
    if (tc_tape_wants(record->input_count, record->inputs)) TC_TRY(tc_node_make_for(&node, target, record, err));
    const unsigned version = raise_version(target);
    if (node) {
        replace_history(target, node, 0, version);
        tc_node_release(node);
    }
    tc_tape_write_base(target);
    return TC_OK;
}

bool tc_tape_lacks_writes(const tc_tensor *target, const tc_tensor *part)
{
    if (!part->wrote || tc_tape_is_stale(part) || !(tc_tape_is_stale(target) || target->version == TC_NEVER_STALE)) return false;
    return target->version >= (target->node ? part->changed_before : part->traced_before);
}

bool tc_tape_has_writes(tc_tensor *target, const tc_tensor *part)
{
    if (!part->base || part->base != (target->base ? target->base : tc_tensor_itself(target))) return false;
    return !tc_tape_is_stale(part) && !tc_tape_is_stale(target);
}

tc_status tc_tape_take_writes(tc_tensor *target, const tc_record *record, tc_error *err)
{
    const unsigned before = target->version;
    tc_node *node = NULL;
    if (repeated_axis(target) >= 0) return TC_OK; /* the part may have been written; the rest of target is out of date */
    TC_TRY(check_write(target, err));
    if (!record || (before != TC_NEVER_STALE && !tc_tape_is_stale(target))) return TC_OK;
    target->version = record->inputs[1]->version; /* the record accounts for what has been written up to here */
    const tc_status status = tc_node_make_for(&node, target, record, err);
    if (status != TC_OK) {
        target->version = before;
        return status;
    }
    replace_history(target, node, 0, target->version);
    tc_node_release(node);
    target->wrote = false;
    return TC_OK;
}

tc_status tc_tape_begin_replace(tc_tensor *target, const tc_tensor *result, tc_error *err)
{
    TC_TRY(check_write(target, err));
    if (result->node) TC_TRY(tc_node_retain_gradient(result->node, result->output, target, err));
    const unsigned version = raise_version(target);
    if (result->node)
        replace_history(target, result->node, result->output, version);
    else if (tc_grad_enabled() && (target->node || tc_tape_is_stale(target)))
        replace_history(target, NULL, 0, version); /* of an op without a gradient */
    tc_tape_write_base(target);
    return TC_OK;
}
