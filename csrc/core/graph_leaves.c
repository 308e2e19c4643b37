/* graph_leaves.c: see graph_leaves.h. */
#include "graph_leaves.h"

#include <stdlib.h>

#include "status.h"

bool tc_graph_leaves_add(tc_graph_leaves *leaves, tc_tensor *leaf, bool is_set, bool is_new)
{
    for (int64_t i = 0; i < leaves->count; i++)
        if (leaves->items[i].leaf == leaf) return true;
    if (!TC_LIST_HAS_ROOM(leaves)) return false;
    leaves->items[leaves->count++] = (tc_graph_leaf){.leaf = tc_tensor_retain(leaf),
                                                     .before = is_set ? NULL : tc_tensor_retain(leaf->grad),
                                                     .data = leaf->data,
                                                     .is_set = is_set,
                                                     .is_new = is_new};
    return true;
}

void tc_graph_leaves_captured(tc_graph_leaves *leaves)
{
    for (int64_t i = 0; i < leaves->count; i++) {
        tc_graph_leaf *recorded = &leaves->items[i];
        recorded->after = tc_tensor_take_grad(recorded->leaf);
        recorded->requires_grad = recorded->leaf->requires_grad;
        if (recorded->is_new) recorded->data = recorded->leaf->data; /* the function may have replaced it */
    }
}

tc_status tc_graph_leaf_moved(const tc_tensor *leaf, tc_error *err)
{
    char shape[TC_SHAPE_TEXT];
    return tc_fail(
        err, TC_ERROR_STATE,
        "the values of a leaf of shape %s are not where they were in the capture: it was moved, cast or got another .data; make a "
        "new tc.cuda.graph",
        tc_tensor_text(shape, leaf));
}

static bool is_as_before(const tc_graph_leaf *recorded)
{
    const tc_tensor *grad = recorded->leaf->grad, *before = recorded->before;
    return recorded->is_set || recorded->is_new || grad == before || (grad && before && grad->data == before->data);
}

static tc_status check(const tc_graph_leaf *recorded, tc_error *err)
{
    char shape[TC_SHAPE_TEXT];
    const tc_tensor *leaf = recorded->leaf;
    if (leaf->data != recorded->data) return tc_graph_leaf_moved(leaf, err);
    if (leaf->requires_grad != recorded->requires_grad)
        return tc_fail(err, TC_ERROR_STATE, "a leaf of shape %s %s a gradient, which in the capture it %s; make a new tc.cuda.graph",
                       tc_tensor_text(shape, leaf), recorded->requires_grad ? "no longer requires" : "now requires",
                       recorded->requires_grad ? "did" : "did not");
    if (is_as_before(recorded)) return TC_OK;
    return tc_fail(err, TC_ERROR_STATE,
                   "a leaf of shape %s %s, but in the capture it %s; call zero_grad() in the function, or each time before it",
                   tc_tensor_text(shape, leaf),
                   !leaf->grad        ? "has no gradient"
                   : recorded->before ? "has a gradient elsewhere"
                                      : "has a gradient",
                   recorded->before ? "had one, to which the captured work adds, or with which it steps" : "had none");
}

tc_status tc_graph_leaves_check(const tc_graph_leaves *leaves, tc_error *err)
{
    for (int64_t i = 0; i < leaves->count; i++) TC_TRY(check(&leaves->items[i], err));
    return TC_OK;
}

tc_status tc_graph_leaves_give(tc_graph_leaves *leaves, tc_error *err)
{
    for (int64_t i = 0; i < leaves->count; i++) {
        tc_graph_leaf *recorded = &leaves->items[i];
        if (recorded->leaf->grad != recorded->after) TC_TRY(tc_tensor_set_grad(recorded->leaf, recorded->after, err));
    }
    return TC_OK;
}

tc_status tc_graph_leaves_give_up(tc_graph_leaves *leaves, tc_error *err)
{
    for (int64_t i = 0; i < leaves->count; i++) TC_TRY(tc_tensor_set_grad(leaves->items[i].leaf, leaves->items[i].before, err));
    return TC_OK;
}

void tc_graph_leaves_free(tc_graph_leaves *leaves)
{
    for (int64_t i = 0; i < leaves->count; i++) {
        tc_tensor_release(leaves->items[i].leaf);
        tc_tensor_release(leaves->items[i].before);
        tc_tensor_release(leaves->items[i].after);
    }
    free(leaves->items);
}
