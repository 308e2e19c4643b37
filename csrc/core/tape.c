/* tape.c: recording ops, and walking back over them. */
#include "tape.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "accumulate.h"
#include "allocator.h"
#include "backend.h"
#include "copy.h"
#include "status.h"

static _Thread_local bool grad_enabled = true;
static atomic_uint_fast64_t next_sequence;

bool tc_grad_enabled(void) { return grad_enabled; }

bool tc_set_grad_enabled(bool enabled)
{
    const bool before = grad_enabled;
    grad_enabled = enabled;
    return before;
}

bool tc_tensor_requires_grad(const tc_tensor *tensor) { return tensor->requires_grad || tensor->node; }
bool tc_tensor_is_leaf(const tc_tensor *tensor) { return !tensor->node; }
tc_tensor *tc_tensor_grad(const tc_tensor *tensor) { return tensor->grad; }

tc_status tc_tensor_set_requires_grad(tc_tensor *tensor, bool requires_grad, tc_error *err)
{
    if (tensor->node && !requires_grad)
        return tc_fail(err, TC_ERROR_STATE, "requires_grad can be turned off for leaf tensors only; this one is a result: use detach()");
    if (requires_grad && !tc_dtype_is_float(tensor->dtype))
        return tc_fail(err, TC_ERROR_TYPE, "only floating tensors can require a gradient, this one is %s; convert it with .float() first",
                       tc_dtype_name(tensor->dtype));
    if (!tensor->node) tensor->requires_grad = requires_grad;
    return TC_OK;
}

tc_status tc_tensor_set_grad(tc_tensor *tensor, tc_tensor *grad, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (grad && !tc_tensor_same_shape(tensor, grad))
        return tc_fail(err, TC_ERROR_VALUE, "grad has shape %s but the tensor has %s; they must be equal", tc_tensor_text(a, grad),
                       tc_tensor_text(b, tensor));
    if (grad && grad->dtype != tensor->dtype)
        return tc_fail(err, TC_ERROR_TYPE, "grad is %s but the tensor is %s; convert it first", tc_dtype_name(grad->dtype),
                       tc_dtype_name(tensor->dtype));
    if (grad == tensor) return tc_fail(err, TC_ERROR_VALUE, "a tensor cannot be its own gradient: assign a clone() of it");
    tc_tensor *kept = grad;
    if (grad && (grad->node || grad->requires_grad || grad->grad)) { /* with what it leads to, it could lead back here: never freed */
        tc_status status = tc_tensor_detach(&kept, grad, err);
        if (status != TC_OK) return status;
    } else {
        tc_tensor_retain(kept);
    }
    tc_tensor_release(tensor->grad);
    tensor->grad = kept;
    return TC_OK;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------- */

tc_node *tc_node_retain(tc_node *node)
{
    atomic_fetch_add_explicit(&node->references, 1, memory_order_relaxed);
    return node;
}

static void free_saved(tc_node *node)
{
    for (int i = 0; i < node->saved_count; i++) {
        tc_tensor_release(node->saved[i].tensor);
        node->saved[i].tensor = NULL;
    }
    node->freed = true;
}

/* A graph can be deeper than any stack: nodes whose last reference goes are put on a list and freed in a loop. */
void tc_node_release(tc_node *node)
{
    if (atomic_fetch_sub_explicit(&node->references, 1, memory_order_acq_rel) != 1) return;
    node->next_free = NULL;
    for (tc_node *list = node; list;) {
        tc_node *dead = list;
        list = dead->next_free;
        free_saved(dead);
        if (dead->op->release) dead->op->release(dead->attributes);
        for (int i = 0; i < dead->input_count; i++) {
            tc_tensor_release(dead->edges[i].leaf);
            tc_node *input = dead->edges[i].node;
            if (input && atomic_fetch_sub_explicit(&input->references, 1, memory_order_acq_rel) == 1) {
                input->next_free = list;
                list = input;
            }
        }
        tc_free(dead, dead->bytes);
    }
}

static size_t round_up(size_t bytes) { return (bytes + 15) & ~(size_t)15; }

/* One block: the node, its edges, saved values and attributes. */
static tc_node *node_new(const tc_record *record)
{
    const size_t head = round_up(sizeof(tc_node)), edges = round_up(sizeof(tc_edge) * (size_t)record->input_count);
    const size_t saved = round_up(sizeof(tc_saved) * (size_t)record->saved_count);
    const size_t bytes = head + edges + saved + record->attribute_bytes;
    char *block = tc_allocate(bytes);
    if (!block) return NULL;
    memset(block, 0, head + edges + saved);
    tc_node *node = (tc_node *)(void *)block;
    atomic_init(&node->references, 1);
    node->op = record->op;
    node->bytes = bytes;
    node->input_count = record->input_count;
    node->output_count = record->output_count;
    node->saved_count = record->saved_count;
    node->edges = (tc_edge *)(void *)(block + head);
    node->saved = (tc_saved *)(void *)(block + head + edges);
    node->attributes = block + head + edges + saved;
    if (record->attribute_bytes) memcpy(node->attributes, record->attributes, record->attribute_bytes);
    return node;
}

static unsigned current_version(const tc_tensor *tensor) { return atomic_load_explicit(&tensor->storage->version, memory_order_acquire); }

/* Without a history, though a recorded write through another tensor has put values here that have one. */
static bool lacks_history(const tc_tensor *input)
{
    return !input->node && input->version < atomic_load_explicit(&input->storage->traced, memory_order_acquire);
}

tc_status tc_tape_apply(const tc_record *record, tc_tensor *gradient, tc_tensor **const *gradients, tc_error *err)
{
    tc_edge edges[TC_MAX_APPLIED] = {{NULL, NULL, 0}};
    tc_saved saved[TC_MAX_APPLIED] = {{NULL, 0}};
    tc_tensor *found[TC_MAX_APPLIED] = {NULL};
    for (int i = 0; i < record->input_count; i++) edges[i].leaf = gradients[i] ? gradient : NULL; /* only looked at, never followed */
    for (int i = 0; i < record->saved_count; i++) saved[i].tensor = record->saved[i];
    union {
        const void *given;
        void *seen;
    } attributes = {record->attributes}; /* a backward does not write there */
    tc_node node = {.op = record->op,
                    .input_count = record->input_count,
                    .output_count = 1,
                    .saved_count = record->saved_count,
                    .edges = edges,
                    .saved = saved,
                    .attributes = attributes.seen};
    const tc_status status = record->op->backward(&node, &gradient, found, err);
    for (int i = 0; i < record->input_count; i++) {
        if (status == TC_OK && gradients[i])
            *gradients[i] = found[i];
        else
            tc_tensor_release(found[i]);
    }
    return status;
}

bool tc_tape_wants(int count, tc_tensor *const *inputs)
{
    if (!grad_enabled) return false;
    for (int i = 0; i < count; i++)
        if (inputs[i] && (tc_tensor_requires_grad(inputs[i]) || lacks_history(inputs[i])))
            return true; /* recording the latter is an error */
    return false;
}

/* Does the history of `input` say how its values came about? A result is out of date when its memory was written through another tensor: a
 * view of it, or what it is a view of. */
static tc_status check_history(const tc_tensor *input, const char *op, tc_error *err)
{
    if (input->node && input->version != current_version(input))
        return tc_fail(err, TC_ERROR_STATE,
                       "%s: an input (made by %s) shares memory that was written in place after it was computed; its gradient would be "
                       "wrong: use clone() "
                       "before the write",
                       op, input->node->op->name);
    if (lacks_history(input))
        return tc_fail(err, TC_ERROR_STATE,
                       "%s: an input shares memory with another tensor that was written in place with values that have a gradient, which "
                       "would be lost here: "
                       "write through one tensor only (x[0, 1] = value, not x[0][1] = value)",
                       op);
    return TC_OK;
}

static tc_status fill_node(tc_node *node, const tc_record *record, tc_error *err)
{
    for (int i = 0; i < record->input_count; i++) {
        tc_tensor *input = record->inputs[i];
        if (!input) continue;
        tc_status status = check_history(input, record->op->name, err);
        if (status != TC_OK) return status;
        if (input->node) {
            node->edges[i].node = tc_node_retain(input->node);
            node->edges[i].output = input->output;
        } else if (input->requires_grad) {
            node->edges[i].leaf = tc_tensor_retain(input);
        }
    }
    for (int i = 0; i < record->saved_count; i++) {
        tc_tensor *value = record->saved[i];
        if (!value) continue;
        tc_status status = tc_tensor_detach(&node->saved[i].tensor, value, err);
        if (status != TC_OK) return status;
        node->saved[i].version = atomic_load_explicit(&value->storage->version, memory_order_acquire);
    }
    return TC_OK;
}

static tc_status make_node(tc_node **out, const tc_record *record, tc_error *err)
{
    tc_node *node = node_new(record);
    if (!node) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: recording %s", record->op->name);
    tc_status status = fill_node(node, record, err);
    if (status != TC_OK) {
        tc_op no_release = *record->op; /* the attributes stay the caller's when recording fails */
        no_release.release = NULL;
        node->op = &no_release;
        tc_node_release(node);
        return status;
    }
    node->sequence = atomic_fetch_add_explicit(&next_sequence, 1, memory_order_relaxed);
    *out = node;
    return TC_OK;
}

static void set_history(tc_tensor *tensor, tc_node *node, int output)
{
    tensor->node = tc_node_retain(node);
    tensor->output = output;
    tensor->version = current_version(tensor);
}

tc_status tc_tape_record(const tc_record *record, tc_error *err)
{
    if (!tc_tape_wants(record->input_count, record->inputs)) return TC_OK;
    tc_node *node;
    tc_status status = make_node(&node, record, err);
    if (status != TC_OK) return status;
    node->is_view = record->inputs[0] && record->outputs[0] && record->inputs[0]->storage == record->outputs[0]->storage;
    for (int i = 0; i < record->output_count; i++)
        if (record->outputs[i]) set_history(record->outputs[i], node, i);
    tc_node_release(node);
    return TC_OK;
}

/* ---- in-place writes -------------------------------------------------------------------------------------------------- */

/* A leaf's values are what the user set them to: the tape has no place for a write to it. */
static bool shares_leaf(const tc_tensor *tensor)
{
    if (!tensor->node) return tensor->requires_grad;
    for (const tc_node *node = tensor->node; node && node->is_view; node = node->edges[0].node)
        if (node->edges[0].leaf) return true;
    return false;
}

static tc_status check_write(const tc_tensor *tensor, tc_error *err)
{
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->strides[i] == 0 && tensor->shape[i] > 1 && tensor->numel > 1)
            return tc_fail(err, TC_ERROR_VALUE,
                           "this tensor repeats its elements along axis %d (expand), so that a write to one would be seen in others; write "
                           "to a clone()",
                           i);
    if (!tensor->storage->writable)
        return tc_fail(err, TC_ERROR_VALUE, "this tensor shares read-only memory and cannot be written in place; write to a clone()");
    if (grad_enabled && shares_leaf(tensor))
        return tc_fail(
            err, TC_ERROR_STATE,
            "a leaf tensor that requires a gradient, or a view of one, cannot be written in place; use tensor.data, or with tc.no_grad():");
    return TC_OK;
}

/* Gives the write to `tensor` a version. The tensor it is written through stays up to date, others that share the memory do not. */
static void raise_version(tc_tensor *tensor)
{
    const unsigned before = atomic_fetch_add_explicit(&tensor->storage->version, 1, memory_order_acq_rel);
    if (tensor->node && tensor->version == before) tensor->version = before + 1;
}

static void replace_history(tc_tensor *target, tc_node *node, int output)
{
    tc_node *before = target->node;
    set_history(target, node, output);
    atomic_store_explicit(&target->storage->traced, target->version, memory_order_release);
    if (before) tc_node_release(before);
}

tc_status tc_tensor_begin_write(tc_tensor *tensor, tc_error *err)
{
    tc_status status = check_write(tensor, err);
    if (status == TC_OK) raise_version(tensor);
    return status;
}

tc_status tc_tape_begin_write(tc_tensor *target, const tc_record *record, tc_error *err)
{
    tc_node *node = NULL;
    tc_status status = check_write(target, err);
    if (status == TC_OK && tc_tape_wants(record->input_count, record->inputs)) status = make_node(&node, record, err);
    if (status != TC_OK) return status;
    raise_version(target);
    if (node) {
        replace_history(target, node, 0);
        tc_node_release(node);
    }
    return TC_OK;
}

tc_status tc_tape_begin_replace(tc_tensor *target, const tc_tensor *result, tc_error *err)
{
    tc_status status = check_write(target, err);
    if (status != TC_OK) return status;
    raise_version(target);
    if (result->node) replace_history(target, result->node, result->output);
    return TC_OK;
}

/* ---- the walk back ------------------------------------------------------------------------------------------------------ */

/* Leaves met on the way, with the gradient gathered for each: committed only when the whole walk has succeeded. */
typedef struct leaf_entry {
    tc_tensor *leaf; /* retained */
    tc_tensor *gradient;
} leaf_entry;

typedef struct walk {
    tc_node **heap; /* nodes waiting, the highest sequence on top */
    int64_t heap_count, heap_capacity;
    leaf_entry *leaves; /* open addressing by address; order of commit does not matter */
    int64_t leaf_count, leaf_capacity;
    bool retain_graph;
} walk;

static tc_status grow(void **block, int64_t *capacity, int64_t wanted, size_t element, tc_error *err)
{
    void *larger = tc_allocate((size_t)wanted * element);
    if (!larger) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the backward's bookkeeping");
    memset(larger, 0, (size_t)wanted * element);
    if (*block) {
        memcpy(larger, *block, (size_t)*capacity * element);
        tc_free(*block, (size_t)*capacity * element);
    }
    *block = larger;
    *capacity = wanted;
    return TC_OK;
}

static tc_status heap_push(walk *w, tc_node *node, tc_error *err)
{
    if (w->heap_count == w->heap_capacity) {
        void *block = w->heap;
        tc_status status = grow(&block, &w->heap_capacity, w->heap_capacity ? 2 * w->heap_capacity : 64, sizeof *w->heap, err);
        if (status != TC_OK) return status;
        w->heap = block;
    }
    int64_t i = w->heap_count++;
    for (; i > 0 && w->heap[(i - 1) / 2]->sequence < node->sequence; i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = node;
    return TC_OK;
}

static tc_node *heap_pop(walk *w)
{
    tc_node *top = w->heap[0], *last = w->heap[--w->heap_count];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < w->heap_count; i = child) {
        if (child + 1 < w->heap_count && w->heap[child + 1]->sequence > w->heap[child]->sequence) child++;
        if (w->heap[child]->sequence < last->sequence) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

/* Adds `gradient` (stolen) to *sum. The first one is kept as it is. */
static tc_status accumulate(tc_tensor **sum, tc_tensor *gradient, tc_error *err)
{
    if (!*sum) {
        *sum = gradient;
        return TC_OK;
    }
    tc_status status = tc_accumulate(sum, gradient, err);
    tc_tensor_release(gradient);
    return status;
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
        tc_status status = grow(&block, &larger.leaf_capacity, w->leaf_capacity ? 2 * w->leaf_capacity : 64, sizeof(leaf_entry), err);
        if (status != TC_OK) return status;
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
    tc_status status =
        node->gradients ? heap_push(w, node, err) : tc_fail(err, TC_ERROR_MEMORY, "out of memory: the backward of %s", node->op->name);
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
    for (int i = 0; i < node->output_count; i++) tc_tensor_release(node->gradients[i]);
    tc_free(node->gradients, sizeof(tc_tensor *) * (size_t)node->output_count);
    node->gradients = NULL;
    atomic_store(&node->walker, NULL);
    tc_node_release(node);
}

/* Sends `gradient` (stolen) where the edge points. */
static tc_status follow_edge(walk *w, const tc_edge *edge, tc_tensor *gradient, tc_error *err)
{
    tc_status status;
    tc_tensor **sum = NULL;
    if (edge->leaf) {
        leaf_entry *entry = NULL;
        status = leaf_for(w, edge->leaf, &entry, err);
        if (status == TC_OK) sum = &entry->gradient;
    } else {
        status = enter_node(w, edge->node, err);
        if (status == TC_OK) sum = &edge->node->gradients[edge->output];
    }
    if (status != TC_OK) {
        tc_tensor_release(gradient);
        return status;
    }
    return accumulate(sum, gradient, err);
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
        if (saved->tensor && saved->version != atomic_load_explicit(&saved->tensor->storage->version, memory_order_acquire))
            return tc_fail(err, TC_ERROR_STATE,
                           "a tensor that the backward of %s needs was written in place after it was saved; write to a clone() instead",
                           node->op->name);
    }
    return TC_OK;
}

#define TC_STACK_EDGES 16

static tc_status visit(walk *w, tc_node *node, tc_error *err)
{
    tc_tensor *stack[TC_STACK_EDGES] = {0}, **inputs = stack;
    const size_t bytes = sizeof(tc_tensor *) * (size_t)node->input_count;
    tc_status status = check_saved(node, err);
    if (status != TC_OK) return status;
    if (node->input_count > TC_STACK_EDGES) {
        inputs = tc_allocate(bytes);
        if (!inputs) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the backward of %s", node->op->name);
        memset(inputs, 0, bytes);
    }
    status = node->op->backward(node, node->gradients, inputs, err);
    for (int i = 0; i < node->input_count; i++) {
        if (!inputs[i]) continue;
        if (status == TC_OK && tc_node_needs(node, i))
            status = follow_edge(w, &node->edges[i], inputs[i], err);
        else
            tc_tensor_release(inputs[i]);
    }
    if (inputs != stack) tc_free(inputs, bytes);
    if (status == TC_OK && !w->retain_graph) free_saved(node);
    return status;
}

/* Everything that can fail first: what each leaf's grad will be. */
static tc_status prepare_leaf(leaf_entry *entry, tc_error *err)
{
    tc_tensor *leaf = entry->leaf, *result = NULL;
    tc_status status = TC_OK;
    if (!entry->gradient) return TC_OK;
    if (leaf->grad) { /* will be added to; what the addition reads must be ready */
        status = tc_tensor_as(&result, entry->gradient, leaf->dtype, err);
    } else if (leaf->grad_slot && entry->gradient->data != leaf->grad_slot->data) {
        status = tc_tensor_copy(leaf->grad_slot, entry->gradient, err);
        result = tc_tensor_retain(leaf->grad_slot);
    } else if (!leaf->grad_slot && !tc_tensor_alone(entry->gradient)) { /* another leaf's as well, or the caller's: the grad is its own */
        status = tc_tensor_like(&result, entry->gradient, err);
        if (status == TC_OK) status = tc_tensor_copy(result, entry->gradient, err);
    } else {
        return TC_OK;
    }
    if (status != TC_OK) {
        tc_tensor_release(result);
        return status;
    }
    tc_tensor_release(entry->gradient);
    entry->gradient = result;
    return TC_OK;
}

static pthread_mutex_t commit_lock = PTHREAD_MUTEX_INITIALIZER; /* leaves may be shared by graphs on several threads */

static tc_status commit(walk *w, tc_error *err)
{
    tc_status status = TC_OK;
    pthread_mutex_lock(&commit_lock);
    for (int64_t i = 0; i < w->leaf_capacity && status == TC_OK; i++)
        if (w->leaves[i].leaf) status = prepare_leaf(&w->leaves[i], err);
    for (int64_t i = 0; i < w->leaf_capacity && status == TC_OK; i++) {
        leaf_entry *entry = &w->leaves[i];
        if (!entry->leaf || !entry->gradient) continue;
        if (entry->leaf->grad) {
            status = tc_add_in_place(entry->leaf->grad, entry->gradient, err); /* so that who holds the grad sees the sum */
        } else {
            entry->leaf->grad = entry->gradient;
            entry->gradient = NULL;
        }
    }
    pthread_mutex_unlock(&commit_lock);
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
    return tc_tensor_as(out, gradient, root->dtype, err);
}

tc_status tc_backward(tc_tensor *root, tc_tensor *gradient, bool retain_graph, tc_error *err)
{
    walk w = {.retain_graph = retain_graph};
    tc_tensor *seed = NULL;
    if (!tc_tensor_requires_grad(root))
        return tc_fail(err, TC_ERROR_STATE,
                       "this tensor recorded nothing to go back through: none of its inputs requires a gradient, or it was computed under "
                       "no_grad() or detached");
    tc_status status = seed_gradient(&seed, root, gradient, err);
    if (status != TC_OK) return status;
    const bool before = tc_set_grad_enabled(false);
    const tc_edge start = {.node = root->node, .leaf = root->node ? NULL : root, .output = root->output};
    status = check_history(root, "backward", err);
    if (status == TC_OK)
        status = follow_edge(&w, &start, seed, err);
    else
        tc_tensor_release(seed);
    while (status == TC_OK && w.heap_count > 0) {
        tc_node *node = heap_pop(&w);
        status = visit(&w, node, err);
        leave_node(node);
    }
    if (status == TC_OK) status = commit(&w, err);
    while (w.heap_count > 0) leave_node(heap_pop(&w));
    for (int64_t i = 0; i < w.leaf_capacity; i++) {
        tc_tensor_release(w.leaves[i].leaf);
        tc_tensor_release(w.leaves[i].gradient);
    }
    if (w.heap) tc_free(w.heap, (size_t)w.heap_capacity * sizeof *w.heap);
    if (w.leaves) tc_free(w.leaves, (size_t)w.leaf_capacity * sizeof *w.leaves);
    tc_set_grad_enabled(before);
    return status;
}
