// fiber.cpp: context switches, their stacks, and what the sanitizers want to hear about both.
#include "fiber.h"
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(EMULATOR_ADDRESS_SANITIZER)
#define EMULATOR_ASAN(...) __VA_ARGS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define EMULATOR_ASAN(...)
#endif
#if defined(EMULATOR_THREAD_SANITIZER)
#define EMULATOR_TSAN(...) __VA_ARGS__
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}
#else
#define EMULATOR_TSAN(...)
#endif

// emulator_switch(save, load): pushes the callee-saved registers, stores the stack pointer in *save, takes `load` as the
// new one and pops. A fresh stack is laid out as if it had been left here, with the entry as return address.
#if defined(__x86_64__)
extern "C" void emulator_switch(void **save, void *load);
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch,@function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch,.-emulator_switch
)");
static void *fresh_stack(char *top, void (*entry)())
{
    void **sp = reinterpret_cast<void **>(top);
    *--sp = nullptr; // the entry's own return address: it never returns; also keeps the 16-byte alignment of a call
    *--sp = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}
#elif defined(__aarch64__)
extern "C" void emulator_switch(void **save, void *load);
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch,%function
emulator_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size emulator_switch,.-emulator_switch
)");
static void *fresh_stack(char *top, void (*entry)())
{
    void **sp = reinterpret_cast<void **>(top - 160);
    memset(sp, 0, 160);
    sp[11] = reinterpret_cast<void *>(entry); // x30
    return sp;
}
#else
#include <ucontext.h>
#define EMULATOR_UCONTEXT
#endif

namespace emulator
{

Fiber::~Fiber()
{
    EMULATOR_TSAN(if (mapping && tsan_fiber) __tsan_destroy_fiber(tsan_fiber);)
#if defined(EMULATOR_UCONTEXT)
    delete static_cast<ucontext_t *>(saved);
#endif
    if (mapping) munmap(mapping, size + static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

void Fiber::allocate_stack(size_t bytes)
{
    if (mapping) return;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size = (bytes + page - 1) / page * page;
    mapping = mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) abort();
    if (mprotect(mapping, page, PROT_NONE) != 0) abort();
    bottom = static_cast<char *>(mapping) + page;
}

void Fiber::start_at(void (*entry)())
{
    EMULATOR_TSAN(if (!tsan_fiber) tsan_fiber = __tsan_create_fiber(0);)
    fake_stack = nullptr;
#if defined(EMULATOR_UCONTEXT)
    if (!saved) saved = new ucontext_t;
    ucontext_t *context = static_cast<ucontext_t *>(saved);
    getcontext(context);
    context->uc_stack.ss_sp = bottom;
    context->uc_stack.ss_size = size;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
#else
    saved = fresh_stack(static_cast<char *>(bottom) + size, entry);
#endif
}

void Fiber::abandon()
{
    EMULATOR_ASAN(__asan_unpoison_memory_region(bottom, size);)
    EMULATOR_TSAN(__tsan_destroy_fiber(tsan_fiber); tsan_fiber = nullptr;)
}

__attribute__((noinline)) void Fiber::switch_from(Fiber &from)
{
    EMULATOR_ASAN(__sanitizer_start_switch_fiber(&from.fake_stack, bottom, size);)
    EMULATOR_TSAN(__tsan_switch_to_fiber(tsan_fiber, __tsan_switch_to_fiber_no_sync);)
#if defined(EMULATOR_UCONTEXT)
    swapcontext(static_cast<ucontext_t *>(from.saved), static_cast<ucontext_t *>(saved));
#else
    emulator_switch(&from.saved, saved);
#endif
    EMULATOR_ASAN(__sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);) // back in `from`
}

void Fiber::on_first_entry() { EMULATOR_ASAN(__sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);) }

void Fiber::adopt_caller()
{
    // Asked for once per thread: for the first one of a process the C library reads all of /proc/self/maps.
    static thread_local void *own_bottom = nullptr;
    static thread_local size_t own_size = 0;
    if (!own_bottom) {
        pthread_attr_t attributes;
        if (pthread_getattr_np(pthread_self(), &attributes) != 0) abort();
        pthread_attr_getstack(&attributes, &own_bottom, &own_size);
        pthread_attr_destroy(&attributes);
    }
    bottom = own_bottom;
    size = own_size;
#if defined(EMULATOR_UCONTEXT)
    if (!saved) saved = new ucontext_t;
#endif
    EMULATOR_TSAN(tsan_fiber = __tsan_get_current_fiber();)
}

#if defined(EMULATOR_THREAD_SANITIZER)
void Fiber::release(void *key) { __tsan_release(key); }
void Fiber::acquire(void *key) { __tsan_acquire(key); }
void Fiber::ignore_accesses(bool ignore)
{
    (ignore ? AnnotateIgnoreReadsBegin : AnnotateIgnoreReadsEnd)(__FILE__, __LINE__);
    (ignore ? AnnotateIgnoreWritesBegin : AnnotateIgnoreWritesEnd)(__FILE__, __LINE__);
}
#endif

} // namespace emulator
