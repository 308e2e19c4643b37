/* tape.c: makes nodes and records ops. In-place writes are in tape_write.c and tape_view.c, the backward is in tape_walk.c. */
#include <string.h>

#include "allocator.h"
#include "copy.h"
#include "own.h"
#include "tape_node.h"
#include "tape_view.h"

static _Thread_local bool grad_enabled = true;
static _Thread_local int suspended; /* how many calls of tc_suspend_recording() this thread is in */
static atomic_uint_fast64_t next_sequence;

bool tc_grad_enabled(void) { return grad_enabled && !suspended; }

void tc_suspend_recording(void) { suspended++; }
void tc_resume_recording(void)
{
    TC_ASSERT(suspended > 0);
    suspended--;
}

int tc_exchange_suspended(int count)
{
    const int before = suspended;
    suspended = count;
    return before;
}

bool tc_set_grad_enabled(bool enabled)
{
    const bool before = grad_enabled;
    grad_enabled = enabled;
    return before;
}

static bool will_have_node(const tc_tensor *tensor) { return tensor->node || (tensor->base && tc_tape_is_renewable(tensor)); }

bool tc_tensor_requires_grad(const tc_tensor *tensor) { return tensor->requires_grad || will_have_node(tensor); }
bool tc_tensor_is_leaf(const tc_tensor *tensor) { return !will_have_node(tensor); }
tc_tensor *tc_tensor_grad(const tc_tensor *tensor) { return tensor->grad; }

tc_status tc_tensor_set_requires_grad(tc_tensor *tensor, bool requires_grad, tc_error *err)
{
    if (tensor->base) TC_TRY(tc_tape_renew_view(tensor, err));
    if (tensor->node && !requires_grad)
        return tc_fail(err, TC_ERROR_STATE, "requires_grad can be turned off for leaf tensors only; this one is a result: use detach()");
    if (requires_grad && !tc_dtype_is_float(tensor->dtype))
        return tc_fail(err, TC_ERROR_TYPE, "only floating tensors can require a gradient, this one is %s; convert it with .float() first",
                       tc_dtype_name(tensor->dtype));
    TC_ASSERT(!tensor->of);
    if (tensor->node) return TC_OK;
    if (requires_grad) tc_tensor_forget_base(tensor);
    tensor->requires_grad = requires_grad;
    return TC_OK;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------- */

tc_node *tc_node_retain(tc_node *node)
{
    tc_add_reference(&node->references);
    return node;
}

void tc_node_free_saved(tc_node *node)
{
    for (int i = 0; i < node->saved_count; i++) {
        tc_tensor_release(node->saved[i].tensor);
        node->saved[i].tensor = NULL;
    }
    node->freed = true;
}

void tc_node_end(tc_node *node)
{
    tc_node_free_saved(node);
    if (!node->op->release || node->spent) return;
    node->spent = true;
    node->op->release(node->attributes);
}

/* A graph can be deeper than any stack: nodes whose last reference is dropped are put on a list and freed in a loop; likewise nodes
 * whose last reference is dropped when something owned by a node is released (a function of Python, which may own tensors). While a thread
 * releases such things, its list is at `lists_here`. */
static _Thread_local tc_node **lists_here;
static atomic_int releasing; /* threads that do: `lists_here` costs more to read */

static void add_dead(tc_node **list, tc_node *node)
{
    node->next_free = *list;
    *list = node;
}

static bool owns_attributes(const tc_node *node) { return node->op->release && !node->spent; }

static void release_owned(const tc_node *node, tc_node **list)
{
    atomic_fetch_add(&releasing, 1);
    lists_here = list;
    if (owns_attributes(node)) node->op->release(node->attributes);
    tc_hooks_release(node->hooks);
    for (int i = 0; i < node->input_count; i++) tc_tensor_release(node->edges[i].leaf);
    lists_here = NULL;
    atomic_fetch_sub(&releasing, 1);
}

tc_hook *tc_hook_find(tc_hook *_Atomic const *list, int output)
{
    tc_hook *hook = atomic_load_explicit(list, memory_order_acquire);
    while (hook && (hook->output != output || hook->retained)) hook = atomic_load_explicit(&hook->next, memory_order_acquire);
    return hook;
}

static tc_hook *_Atomic *hooks_of(tc_tensor *tensor) { return tensor->node ? &tensor->node->hooks : &tensor->hooks; }

tc_hook *tc_tensor_hook(tc_tensor *tensor) { return tc_hook_find(hooks_of(tensor), tensor->node ? tensor->output : 0); }

static tc_status add_hook(tc_hook *_Atomic *list, int output, const tc_hook *hook, tc_error *err)
{
    tc_hook *added = tc_allocate(sizeof *added);
    if (!added) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a hook");
    *added = (tc_hook){.output = output,
                       .retained = hook->retained,
                       .history = hook->history,
                       .call = hook->call,
                       .release = hook->release,
                       .context = hook->context};
    tc_hook *first = atomic_load_explicit(list, memory_order_acquire);
    do atomic_store_explicit(&added->next, first, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(list, &first, added));
    return TC_OK;
}

tc_status tc_tensor_add_hook(tc_tensor *tensor, const tc_hook *hook, tc_error *err)
{
    TC_TRY(tc_check_history(tensor, "a hook", err));
    return add_hook(hooks_of(tensor), tensor->node ? tensor->output : 0, hook, err);
}

tc_status tc_node_retain_gradient(tc_node *node, int output, const tc_tensor *target, tc_error *err)
{
    tc_retained *retained = target->retained;
    if (!retained) return TC_OK;
    const tc_hook hook = {.retained = retained, .history = atomic_load(&retained->history) + 1};
    TC_TRY(add_hook(&node->hooks, output, &hook, err));
    tc_add_reference(&retained->references); /* of the hook */
    atomic_store(&retained->history, hook.history);
    return TC_OK;
}

tc_status tc_tensor_retain_gradient(tc_tensor *tensor, const tc_hook *function, tc_error *err)
{
    TC_TRY(tc_check_history(tensor, "retain_grad", err));
    TC_ASSERT(tensor->node && !tensor->retained);
    tc_retained *retained = tc_allocate(sizeof *retained);
    if (!retained) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a hook");
    *retained = (tc_retained){.call = function->call, .release = function->release, .context = function->context};
    atomic_init(&retained->references, 1);
    atomic_init(&retained->history, 0);
    tensor->retained = retained;
    const tc_status status = tc_node_retain_gradient(tensor->node, tensor->output, tensor, err);
    if (status != TC_OK) { /* the context stays the caller's */
        tensor->retained = NULL;
        tc_free(retained, sizeof *retained);
    }
    return status;
}

void tc_retained_release(tc_retained *retained)
{
    if (!tc_drop_reference(&retained->references)) return;
    retained->release(retained->context);
    tc_free(retained, sizeof *retained);
}

void tc_hooks_release(tc_hook *list)
{
    while (list) {
        tc_hook *next = list->next;
        if (list->retained)
            tc_retained_release(list->retained);
        else
            list->release(list->context);
        tc_free(list, sizeof *list);
        list = next;
    }
}

/* Is this the last reference to a leaf that was given a history later? */
static bool has_late_history(const tc_node *node)
{
    for (int i = 0; i < node->input_count; i++) {
        tc_tensor *leaf = node->edges[i].leaf;
        if (leaf && atomic_load_explicit(&leaf->references, memory_order_acquire) == 1 && leaf->node) return true;
    }
    return false;
}

void tc_node_release(tc_node *node)
{
    tc_node *list = NULL;
    if (!tc_drop_reference(&node->references)) return;
    if (atomic_load(&releasing) && lists_here) {
        add_dead(lists_here, node);
        return;
    }
    add_dead(&list, node);
    while ((node = list) != NULL) {
        list = node->next_free;
        TC_ASSERT(!node->walker && !node->gradients);
        tc_node_free_saved(node);
        if (owns_attributes(node) || node->hooks || has_late_history(node))
            release_owned(node, &list);
        else
            for (int i = 0; i < node->input_count; i++) tc_tensor_release(node->edges[i].leaf);
        for (int i = 0; i < node->input_count; i++) {
            tc_node *input = node->edges[i].node;
            if (input && tc_drop_reference(&input->references)) add_dead(&list, input);
        }
        tc_free(node, node->bytes);
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

bool tc_tape_wants(int count, tc_tensor *const *inputs)
{
    if (!tc_grad_enabled()) return false;
    for (int i = 0; i < count; i++)
        if (inputs[i] && (tc_tensor_requires_grad(inputs[i]) || tc_tape_is_stale(inputs[i])))
            return true; /* recording the latter is an error */
    return false;
}

tc_status tc_check_history(tc_tensor *input, const char *op, tc_error *err)
{
    if (input->base) TC_TRY(tc_tape_renew_view(input, err));
    if (!tc_tape_is_stale(input)) return TC_OK;
    if (input->node)
        return tc_fail(err, TC_ERROR_STATE,
                       "%s: an input (made by %s) shares memory that was written in place after it was computed; its gradient would be "
                       "wrong: use clone() before the write",
                       op, input->node->op->name);
    return tc_fail(err, TC_ERROR_STATE,
                   "%s: an input shares memory with another tensor that was written in place with values that have a gradient, which would "
                   "be lost here: use clone() before the write",
                   op);
}

/* May the values change unnoticed before a backward reads them? An array that was passed to the call may, and so may all memory that a
 * Tensor shares. Of the latter only indices, labels and masks are copied: as_tensor() promises that floats stay shared. */
static bool may_change(const tc_tensor *value)
{
    const tc_storage *storage = value->storage;
    return storage->is_argument || (!tc_dtype_is_float(value->dtype) && atomic_load_explicit(&storage->shared, memory_order_relaxed));
}

/* node->saved[i]: what the backward reads in place of `value`. A tensor that is saved twice is copied once. */
static tc_status save(tc_node *node, const tc_record *record, int i, tc_error *err)
{
    tc_tensor *value = record->saved[i], **saved = &node->saved[i].tensor;
    if (!may_change(value)) {
        TC_TRY(tc_tensor_detach(saved, value, err));
    } else {
        int before = 0;
        while (before < i && !(record->saved[before] && tc_tensor_same_view(record->saved[before], value))) before++;
        if (before < i)
            *saved = tc_tensor_retain(node->saved[before].tensor);
        else
            TC_TRY(tc_tensor_copy_of(saved, value, err));
    }
    node->saved[i].version = tc_current_version(*saved);
    return TC_OK;
}

tc_status tc_tape_keep_saved(tc_tensor *result, const tc_tensor *target, tc_error *err)
{
    tc_node *node = result->node;
    for (int i = 0; node && i < node->saved_count; i++) {
        tc_tensor **saved = &node->saved[i].tensor, *copy;
        if (!*saved || (*saved)->storage != target->storage) continue;
        TC_TRY(tc_tensor_copy_of(&copy, *saved, err));
        tc_tensor_release(*saved);
        *saved = copy;
        node->saved[i].version = tc_current_version(copy);
    }
    return TC_OK;
}

static tc_status fill_node(tc_node *node, const tc_record *record, tc_error *err)
{
    for (int i = 0; i < record->input_count; i++) {
        tc_tensor *input = record->inputs[i];
        if (!input) continue;
        TC_TRY(tc_check_history(input, record->op->name, err));
        node->edges[i].shape = tc_shape_digest(input);
        if (input->node) {
            node->edges[i].node = tc_node_retain(input->node);
            node->edges[i].output = input->output;
        } else if (input->requires_grad) {
            node->edges[i].leaf = tc_tensor_retain(tc_tensor_itself(input));
        }
    }
    for (int i = 0; i < record->saved_count; i++)
        if (record->saved[i]) TC_TRY(save(node, record, i, err));
    return TC_OK;
}

tc_status tc_node_make(tc_node **out, const tc_record *record, tc_error *err)
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

void tc_set_history(tc_tensor *tensor, tc_node *node, int output)
{
    TC_ASSERT(output >= 0 && output < node->output_count);
    tensor->node = tc_node_retain(node);
    tensor->output = output;
    tensor->version = tc_current_version(tensor);
}

tc_status tc_tape_record(const tc_record *record, tc_error *err)
{
    if (!tc_tape_wants(record->input_count, record->inputs)) return TC_OK;
    tc_node *node;
    TC_TRY(tc_node_make(&node, record, err));
    node->is_view = record->inputs[0] && record->outputs[0] && record->inputs[0]->storage == record->outputs[0]->storage;
    for (int i = 0; i < record->output_count; i++)
        if (record->outputs[i]) {
            TC_ASSERT(!record->outputs[i]->node); /* a result is recorded once */
            tc_set_history(record->outputs[i], node, i);
        }
    tc_node_release(node);
    return TC_OK;
}
