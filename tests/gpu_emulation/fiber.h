// fiber.h: one stack and one saved register set a CUDA thread, and the switch between them.
//
// A switch costs a few nanoseconds: a dozen instructions on x86-64 and aarch64, ucontext elsewhere. Under
// AddressSanitizer and ThreadSanitizer each switch is announced through their fiber interfaces, so that ASan knows which
// stack it looks at and TSan keeps one clock a CUDA thread.
#pragma once
#include <cstddef>

namespace emulator
{

class Fiber
{
  public:
    Fiber() = default;
    Fiber(const Fiber &) = delete;
    Fiber &operator=(const Fiber &) = delete;
    ~Fiber();

    // Gives the fiber a stack of its own (kept for reuse, with an unmapped page below it so that an overflow faults).
    void allocate_stack(size_t bytes);
    // The next switch to it starts entry(). It has done what it was started for, or was abandoned.
    void start_at(void (*entry)());
    // Drops whatever it was doing: nothing is unwound.
    void abandon();
    // Leaves `from` (where the caller runs now) and continues this one.
    void switch_from(Fiber &from);
    // To be called first thing by an entry function: completes the switch that started it.
    void on_first_entry();
    // Makes this object stand for the stack of the calling operating-system thread.
    void adopt_caller();
    // Makes what the emulation has ordered (barriers, launches) known to ThreadSanitizer; nothing otherwise.
#if defined(EMULATOR_THREAD_SANITIZER)
    static void release(void *key);
    static void acquire(void *key);
    static void ignore_accesses(bool ignore); // of this fiber: the emulator's own work
#else
    static void release(void *) {}
    static void acquire(void *) {}
    static void ignore_accesses(bool) {}
#endif

    const void *stack_bottom() const { return bottom; }
    size_t stack_size() const { return size; }

  private:
    void *saved = nullptr;      // stack pointer, or ucontext_t
    void *bottom = nullptr;     // lowest usable address
    size_t size = 0;            // bytes
    void *mapping = nullptr;    // with the guard page; null for an adopted stack
    void *fake_stack = nullptr; // AddressSanitizer's
    void *tsan_fiber = nullptr;
};

// While it lives ThreadSanitizer does not look at memcpy and the like, which it intercepts wherever they are called.
struct OwnWork {
    OwnWork() { Fiber::ignore_accesses(true); }
    ~OwnWork() { Fiber::ignore_accesses(false); }
    OwnWork(const OwnWork &) = delete;
    OwnWork &operator=(const OwnWork &) = delete;
};

} // namespace emulator
