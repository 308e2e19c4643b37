/* tape_walk.c: the backward over the nodes, and the gradients of leaves. */
#include <string.h>

#include "accumulate.h"
#include "allocator.h"
#include "copy.h"
#include "graph.h"
#include "lock.h"
#include "own.h"
#include "tape_final.h"
#include "tape_node.h"
#include "tape_path.h"

/* The leaves reached, with the gradient accumulated for each: committed only when the whole walk has succeeded. */
typedef struct leaf_entry {
    tc_tensor *leaf; /* retained */
    tc_tensor *gradient;
    tc_look now; /* at the commit */
} leaf_entry;

typedef struct walk {
    tc_node_heap waiting; /* the nodes that were entered */
    leaf_entry *leaves;   /* open addressing by address; order of commit does not matter */
    int64_t leaf_count, leaf_capacity;
    bool retain_graph;
    const tc_watch *watch; /* or NULL */
    tc_finals finals;      /* of its leaves */
    const tc_path *path;   /* to those whose gradients are asked for; NULL: all leaves */
} walk;

static _Thread_local uint64_t walks; /* that this thread has begun */

/* Adds `gradient` (stolen) to *sum. The first one is kept as it is. */
static tc_status accumulate(tc_tensor **sum, tc_tensor *gradient, tc_error *err)
{
    if (!*sum) {
        *sum = gradient;
        return TC_OK;
    }
    return tc_accumulate(sum, gradient, err);
}

static leaf_entry *find_leaf(const walk *w, const tc_tensor *leaf)
{
    const uint64_t mask = (uint64_t)w->leaf_capacity - 1;
    for (uint64_t i = ((uintptr_t)leaf / 64 * 0x9E3779B97F4A7C15u) >> 20;; i++)
        if (!w->leaves[i & mask].leaf || w->leaves[i & mask].leaf == leaf) return &w->leaves[i & mask];
}

static tc_status leaf_for(walk *w, tc_tensor *leaf, leaf_entry **entry, tc_error *err)
{
    if (2 * (w->leaf_count + 1) > w->leaf_capacity) {
        walk larger = {0};
        void *block = NULL;
        TC_TRY(tc_grow(&block, &larger.leaf_capacity, w->leaf_capacity ? 2 * w->leaf_capacity : 16, sizeof(leaf_entry), err));
        larger.leaves = block;
        for (int64_t i = 0; i < w->leaf_capacity; i++)
            if (w->leaves[i].leaf) *find_leaf(&larger, w->leaves[i].leaf) = w->leaves[i];
        if (w->leaves) tc_free(w->leaves, (size_t)w->leaf_capacity * sizeof(leaf_entry));
        w->leaves = larger.leaves;
        w->leaf_capacity = larger.leaf_capacity;
    }
    *entry = find_leaf(w, leaf);
    if (!(*entry)->leaf) {
        (*entry)->leaf = tc_tensor_retain(leaf);
        w->leaf_count++;
    }
    return TC_OK;
}

/* Makes room for the gradients of a node's outputs and queues it. */
static tc_status enter_node(walk *w, tc_node *node, tc_error *err)
{
    void *walker = NULL;
    if (!atomic_compare_exchange_strong(&node->walker, &walker, w)) {
        if (walker == w) return TC_OK;
        return tc_fail(err, TC_ERROR_STATE, "another thread is running backward through this graph; run one after the other");
    }
    const size_t bytes = sizeof(tc_tensor *) * (size_t)node->output_count;
    node->gradients = tc_allocate(bytes);
    if (node->gradients) memset(node->gradients, 0, bytes);
    tc_status status = node->gradients ? tc_heap_push(&w->waiting, node, err)
                                       : tc_fail(err, TC_ERROR_MEMORY, "out of memory: the backward of %s", node->op->name);
    if (status != TC_OK) {
        if (node->gradients) tc_free(node->gradients, bytes);
        node->gradients = NULL;
        atomic_store(&node->walker, NULL);
        return status;
    }
    tc_node_retain(node);
    return TC_OK;
}

static void leave_node(tc_node *node)
{
    TC_ASSERT(node->walker && node->gradients);
    for (int i = 0; i < node->output_count; i++) tc_tensor_release(node->gradients[i]);
    tc_free(node->gradients, sizeof(tc_tensor *) * (size_t)node->output_count);
    node->gradients = NULL;
    atomic_store(&node->walker, NULL);
    tc_node_release(node);
}

bool tc_node_needs(const tc_node *node, int input)
{
    const walk *w = atomic_load_explicit(&node->walker, memory_order_relaxed);
    const tc_edge *edge = &node->edges[input];
    return (edge->node || edge->leaf) && (!w || !w->path || tc_path_has(w->path, edge));
}

/* Sends `gradient` (stolen) where the edge points. */
static tc_status follow_edge(walk *w, const tc_edge *edge, tc_tensor *gradient, tc_error *err)
{
    tc_status status;
    tc_tensor **sum = NULL;
    TC_ASSERT(!edge->leaf != !edge->node);
    const bool is_frozen = edge->leaf && !edge->leaf->requires_grad; /* since it was recorded */
    if (is_frozen || (w->path && !tc_path_has(w->path, edge))) {
        tc_tensor_release(gradient);
        return TC_OK;
    }
    if (edge->leaf) {
        leaf_entry *entry = NULL;
        status = leaf_for(w, edge->leaf, &entry, err);
        if (status == TC_OK) sum = &entry->gradient;
    } else {
        TC_ASSERT(edge->output < edge->node->output_count);
        status = enter_node(w, edge->node, err);
        if (status == TC_OK) sum = &edge->node->gradients[edge->output];
    }
    if (status != TC_OK) {
        tc_tensor_release(gradient);
        return status;
    }
    return accumulate(sum, gradient, err);
}

tc_tensor *tc_node_take_sum(const tc_node *node, int input, tc_dtype dtype)
{
    const tc_edge *edge = &node->edges[input];
    const walk *w = atomic_load(&node->walker);
    tc_tensor **sum = NULL;
    TC_ASSERT(w);
    if (edge->leaf && w->leaves)
        sum = &find_leaf(w, edge->leaf)->gradient;
    else if (edge->node && atomic_load(&edge->node->walker) == w)
        sum = &edge->node->gradients[edge->output];
    return sum && *sum && (*sum)->contiguous && (*sum)->dtype == dtype ? tc_take(sum) : NULL;
}

static tc_status check_saved(const tc_node *node, tc_error *err)
{
    if (node->freed)
        return tc_fail(err, TC_ERROR_STATE,
                       "backward a second time through %s, whose saved values were freed by the first; pass retain_graph=True to the first "
                       "backward, or "
                       "compute the forward again",
                       node->op->name);
    for (int i = 0; i < node->saved_count; i++) {
        const tc_saved *saved = &node->saved[i];
        if (saved->tensor && saved->version != tc_current_version(saved->tensor))
            return tc_fail(err, TC_ERROR_STATE,
                           "a tensor that the backward of %s needs was written in place after it was saved; write to a clone() instead",
                           node->op->name);
    }
    return TC_OK;
}

/* A gradient of another shape would be added beyond the end of memory. */
static tc_status check_shape(const tc_node *node, int input, const tc_tensor *gradient, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    if (node->edges[input].shape == tc_shape_digest(gradient)) return TC_OK;
    return tc_fail(err, TC_ERROR_STATE, "the backward of %s gave its input %d a gradient of shape %s, which is not the shape of the input",
                   node->op->name, input, tc_tensor_text(text, gradient));
}

static tc_status call_hooks(tc_node *node, tc_error *err)
{
    tc_hook *first = atomic_load_explicit(&node->hooks, memory_order_acquire);
    for (tc_hook *hook = first; hook; hook = hook->next)
        if (!hook->retained && node->gradients[hook->output]) TC_TRY(hook->call(hook->context, &node->gradients[hook->output], err));
    for (tc_hook *hook = first; hook; hook = hook->next) {
        tc_retained *retained = hook->retained;
        if (retained && node->gradients[hook->output] && atomic_load(&retained->history) == hook->history)
            TC_TRY(retained->call(retained->context, &node->gradients[hook->output], err));
    }
    return TC_OK;
}

/* Those of leaves, whose gradients of this walk are complete now; before any lock is taken. */
static tc_status call_leaf_hooks(const walk *w, tc_error *err)
{
    for (leaf_entry *entry = w->leaves; entry < w->leaves + w->leaf_capacity; entry++) {
        tc_hook *hook = entry->leaf && entry->gradient ? tc_hook_find(&entry->leaf->hooks, 0) : NULL;
        if (hook) TC_TRY(hook->call(hook->context, &entry->gradient, err));
    }
    return TC_OK;
}

static tc_status tell(const walk *w, const tc_final *final, tc_error *err)
{
    const leaf_entry *entry = w->leaves ? find_leaf(w, final->leaf) : NULL;
    return w->watch->is_final(w->watch->context, final->place, entry && entry->leaf ? entry->gradient : NULL, err);
}

static tc_status tell_finals(walk *w, tc_error *err)
{
    if (!w->watch) return TC_OK;
    for (const tc_final *final; (final = tc_finals_next(&w->finals, &w->waiting)) != NULL;) TC_TRY(tell(w, final, err));
    return TC_OK;
}

/* Of leaves with hooks, which have been called. */
static tc_status tell_rest(walk *w, tc_error *err)
{
    if (!w->watch) return TC_OK;
    while (w->finals.told < w->finals.count) TC_TRY(tell(w, &w->finals.leaves[w->finals.told++], err));
    return TC_OK;
}

#define TC_STACK_EDGES 16

static tc_status visit(walk *w, tc_node *node, tc_error *err)
{
    tc_tensor *stack[TC_STACK_EDGES] = {0}, **inputs = stack;
    const size_t bytes = sizeof(tc_tensor *) * (size_t)node->input_count;
    const bool goes_on = !w->path || tc_path_goes_on(w->path, node);
    if (goes_on) TC_TRY(check_saved(node, err));
    TC_TRY(call_hooks(node, err));
    if (w->path) tc_path_keep(w->path, node);
    if (!goes_on) return TC_OK;
    if (node->input_count > TC_STACK_EDGES) {
        inputs = tc_allocate(bytes);
        if (!inputs) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the backward of %s", node->op->name);
        memset(inputs, 0, bytes);
    }
    tc_status status = node->op->backward(node, node->gradients, inputs, err);
    for (int i = 0; i < node->input_count; i++) {
        if (!inputs[i]) continue;
        const bool wanted = tc_node_needs(node, i);
        if (status == TC_OK && wanted) status = check_shape(node, i, inputs[i], err);
        if (status == TC_OK && wanted)
            status = follow_edge(w, &node->edges[i], inputs[i], err);
        else
            tc_tensor_release(inputs[i]);
    }
    if (inputs != stack) tc_free(inputs, bytes);
    if (status == TC_OK && !w->retain_graph) tc_node_end(node);
    return status;
}

/* Makes *gradient a tensor that nobody shares: not another leaf, nor the caller. */
static tc_status make_own(tc_tensor **gradient, tc_dtype dtype, tc_error *err)
{
    TC_OWNED tc_tensor *result = NULL;
    if ((*gradient)->dtype != dtype) {
        TC_TRY(tc_tensor_as(&result, *gradient, dtype, err));
    } else if (!tc_tensor_alone(*gradient)) {
        TC_TRY(tc_tensor_like(&result, *gradient, err));
        TC_TRY(tc_tensor_copy(result, *gradient, err));
    } else {
        return TC_OK;
    }
    tc_tensor_release(*gradient);
    *gradient = tc_take(&result);
    return TC_OK;
}

/* Everything that can fail is done first: computes the future grad of each leaf. */
static tc_status prepare_leaf(leaf_entry *entry, tc_error *err)
{
    TC_OWNED tc_tensor *result = NULL;
    const tc_look *now = &entry->now;
    tc_tensor *slot = now->slot;
    char text[TC_SHAPE_TEXT], before[TC_DEVICE_TEXT], after[TC_DEVICE_TEXT];
    if (!entry->gradient) return TC_OK;
    if (!tc_same_device(now->device, entry->gradient->storage->device))
        return tc_fail(
            err, TC_ERROR_STATE,
            "a Tensor of shape %s was moved from %s to %s after it was used, and its gradient is where it was; compute the forward again",
            tc_tensor_text(text, entry->gradient), tc_device_text(before, entry->gradient->storage->device),
            tc_device_text(after, now->device));
    if (now->grad) { /* the gradient will be added to it; the operands of the addition must be ready */
        TC_TRY(tc_tensor_as(&result, entry->gradient, now->grad->dtype, err));
    } else if (slot && slot->dtype == now->dtype) {
        if (entry->gradient->data != slot->data) TC_TRY(tc_tensor_copy(slot, entry->gradient, err));
        atomic_fetch_add_explicit(&slot->storage->version, 1, memory_order_acq_rel); /* a graph may have saved the gradient before */
        result = tc_tensor_retain(slot->of);
    } else {
        return make_own(&entry->gradient, now->dtype, err);
    }
    tc_tensor_release(entry->gradient);
    entry->gradient = tc_take(&result);
    return TC_OK;
}

TC_DEFINE_LOCK(commit_lock, TC_RANK_COMMIT) /* leaves may be shared by graphs on several threads */

static tc_status commit(walk *w, tc_error *err)
{
    tc_lock_take(&commit_lock);
    tc_lock_take(&tc_replacing);
    tc_status status = TC_OK;
    for (int64_t i = 0; i < w->leaf_capacity && status == TC_OK; i++)
        if (w->leaves[i].gradient) status = tc_tensor_look(&w->leaves[i].now, w->leaves[i].leaf, err);
    tc_lock_give(&tc_replacing);
    for (int64_t i = 0; i < w->leaf_capacity && status == TC_OK; i++) status = prepare_leaf(&w->leaves[i], err);
    for (int64_t i = 0; i < w->leaf_capacity && status == TC_OK; i++)
        if (w->leaves[i].now.grad) { /* in place, so that everyone who has the grad sees the sum */
            tc_graph_note_leaf(w->leaves[i].leaf, false);
            status = tc_add_in_place(w->leaves[i].now.grad, w->leaves[i].gradient, err);
        }
    if (status == TC_OK) {
        tc_lock_take(&tc_replacing);
        for (int64_t i = 0; i < w->leaf_capacity; i++)
            if (w->leaves[i].gradient && !w->leaves[i].now.grad) tc_tensor_give_grad(w->leaves[i].leaf, &w->leaves[i].gradient);
        tc_lock_give(&tc_replacing);
    }
    tc_lock_give(&commit_lock);
    return status;
}

/* The gradient the walk starts with: `gradient` checked, or one. */
static tc_status seed_gradient(tc_tensor **out, tc_tensor *root, tc_tensor *gradient, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (!gradient) {
        if (root->numel != 1)
            return tc_fail(
                err, TC_ERROR_STATE,
                "backward() starts from a tensor of one element; this one has shape %s: reduce it (.sum(), .mean()) or pass gradient=",
                tc_tensor_text(a, root));
        return tc_tensor_full(out, root->ndim, root->shape, 1.0, root->dtype, root->storage->device, err);
    }
    if (!tc_tensor_same_shape(root, gradient))
        return tc_fail(err, TC_ERROR_VALUE, "gradient has shape %s but the tensor has %s; they must be equal", tc_tensor_text(a, gradient),
                       tc_tensor_text(b, root));
    TC_OWNED tc_tensor *brought = NULL; /* without axes: as a number, it is copied to the GPU of the root */
    if (!gradient->ndim) TC_TRY(tc_tensor_on(&brought, gradient, root->storage->device, err));
    if (brought) gradient = brought;
    TC_TRY(tc_check_same_device(gradient, "gradient", root, "the tensor", err));
    return tc_tensor_as(out, gradient, root->dtype, err);
}

tc_status tc_backward(tc_tensor *root, tc_tensor *gradient, bool retain_graph, tc_error *err)
{
    return tc_backward_watched(root, gradient, retain_graph, NULL, err);
}

static tc_status check_recorded(const tc_tensor *root, tc_error *err)
{
    if (tc_tensor_requires_grad(root)) return TC_OK;
    return tc_fail(err, TC_ERROR_STATE,
                   "this tensor recorded nothing to go back through: none of its inputs requires a gradient, or it was computed under "
                   "no_grad() or detached, or it is a result of tc.cuda.graph, in whose function backward() belongs");
}

/* Enters the graph at `root`. */
static tc_status start(walk *w, tc_tensor *root, tc_tensor *gradient, tc_error *err)
{
    tc_tensor *seed = NULL;
    const tc_edge edge = {.node = root->node, .leaf = root->node ? NULL : tc_tensor_itself(root), .output = root->output};
    TC_TRY(seed_gradient(&seed, root, gradient, err));
    return follow_edge(w, &edge, seed, err);
}

static tc_status visit_all(walk *w, tc_error *err)
{
    TC_TRY(tell_finals(w, err));
    while (w->waiting.count > 0) {
        tc_node *node = tc_heap_pop(&w->waiting);
        const tc_status status = visit(w, node, err);
        leave_node(node);
        TC_TRY(status);
        TC_TRY(tell_finals(w, err));
    }
    return call_leaf_hooks(w, err);
}

static void end_walk(walk *w)
{
    while (w->waiting.count > 0) leave_node(tc_heap_pop(&w->waiting));
    for (leaf_entry *entry = w->leaves; entry < w->leaves + w->leaf_capacity; entry++) {
        if (!entry->leaf) continue;
        tc_tensor_release(entry->leaf);
        tc_tensor_release(entry->gradient);
        tc_tensor_release(entry->now.grad);
        tc_tensor_release(entry->now.slot);
    }
    tc_heap_free(&w->waiting);
    tc_finals_free(&w->finals);
    if (w->leaves) tc_free(w->leaves, (size_t)w->leaf_capacity * sizeof *w->leaves);
}

tc_status tc_backward_watched(tc_tensor *root, tc_tensor *gradient, bool retain_graph, tc_watch *watch, tc_error *err)
{
    walk w = {.retain_graph = retain_graph, .watch = watch};
    const uint64_t number = ++walks;
    TC_TRY(check_recorded(root, err));
    tc_suspend_recording();
    tc_status status = tc_check_history(root, "backward", err);
    if (status == TC_OK && watch) status = tc_finals_find(&w.finals, root->node, watch->count, watch->leaves, err);
    if (status == TC_OK) status = start(&w, root, gradient, err);
    if (status == TC_OK) status = visit_all(&w, err);
    if (status == TC_OK) status = tell_rest(&w, err);
    if (status == TC_OK) status = commit(&w, err);
    if (watch) watch->was_alone = number == walks;
    end_walk(&w);
    tc_resume_recording();
    return status;
}

/* Moves the gradients of the path's tensors to `out`. */
static tc_status take_gradients(walk *w, const tc_path *path, tc_tensor **out, tc_error *err)
{
    for (int64_t i = 0; i < path->count; i++) {
        const leaf_entry *entry = !path->inputs[i]->node && w->leaves ? find_leaf(w, tc_tensor_itself(path->inputs[i])) : NULL;
        if (path->inputs[i]->node)
            out[i] = tc_take(&path->gradients[i]);
        else if (entry && entry->gradient)
            out[i] = tc_tensor_retain(entry->gradient);
    }
    for (leaf_entry *entry = w->leaves; entry < w->leaves + w->leaf_capacity; entry++) tc_tensor_release(tc_take(&entry->gradient));
    for (int64_t i = 0; i < path->count; i++)
        if (out[i]) TC_TRY(make_own(&out[i], path->inputs[i]->dtype, err));
    return TC_OK;
}

/* Where `out` is NULL, those of leaves are added to their grads. */
static tc_status walk_to(tc_tensor **out, int64_t count, tc_tensor *const *inputs, int64_t root_count, tc_tensor *const *roots,
                         tc_tensor *const *gradients, bool retain_graph, tc_error *err)
{
    const char *name = out ? "grad" : "backward";
    tc_path path = {0};
    walk w = {.retain_graph = retain_graph, .path = &path};
    tc_status status = TC_OK;
    walks++;
    for (int64_t i = 0; i < root_count; i++) TC_TRY(check_recorded(roots[i], err));
    tc_suspend_recording();
    for (int64_t i = 0; i < root_count && status == TC_OK; i++) status = tc_check_history(roots[i], name, err);
    for (int64_t i = 0; i < count && status == TC_OK; i++) status = tc_check_history(inputs[i], name, err);
    if (status == TC_OK) status = tc_path_find(&path, count, inputs, root_count, roots, err);
    for (int64_t i = 0; i < root_count && status == TC_OK; i++) status = start(&w, roots[i], gradients[i], err);
    if (status == TC_OK) status = visit_all(&w, err);
    if (status == TC_OK) status = out ? take_gradients(&w, &path, out, err) : commit(&w, err);
    end_walk(&w);
    tc_path_free(&path);
    tc_resume_recording();
    return status;
}

tc_status tc_gradients(tc_tensor **out, int64_t count, tc_tensor *const *inputs, int64_t root_count, tc_tensor *const *roots,
                       tc_tensor *const *gradients, bool retain_graph, tc_error *err)
{
    for (int64_t i = 0; i < count; i++) out[i] = NULL;
    const tc_status status = walk_to(out, count, inputs, root_count, roots, gradients, retain_graph, err);
    for (int64_t i = 0; i < count && status != TC_OK; i++) tc_tensor_release(tc_take(&out[i]));
    return status;
}

tc_status tc_backward_to(int64_t count, tc_tensor *const *inputs, int64_t root_count, tc_tensor *const *roots, tc_tensor *const *gradients,
                         bool retain_graph, tc_error *err)
{
    return walk_to(NULL, count, inputs, root_count, roots, gradients, retain_graph, err);
}
