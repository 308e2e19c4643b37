// hooks.cpp: the functions that -fsanitize=thread calls before each load and store, for the flavours that look at them by themselves and
// are not linked with ThreadSanitizer.
#if defined(EMULATOR_ACCESS_CHECK) || defined(EMULATOR_COUNT)
#include "hooks.h"

#define CALLER __builtin_return_address(0)
#define ACCESS(size)                                                                                                                       \
    void __tsan_read##size(void *p) { emulator::look(p, size, false, true, CALLER); }                                                      \
    void __tsan_write##size(void *p) { emulator::look(p, size, true, true, CALLER); }                                                      \
    void __tsan_unaligned_read##size(void *p) { emulator::look(p, size, false, true, CALLER); }                                            \
    void __tsan_unaligned_write##size(void *p) { emulator::look(p, size, true, true, CALLER); }                                            \
    void __tsan_volatile_read##size(void *p) { emulator::look(p, size, false, true, CALLER); }                                             \
    void __tsan_volatile_write##size(void *p) { emulator::look(p, size, true, true, CALLER); }

extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *p, unsigned long bytes) { emulator::look(p, bytes, false, false, CALLER); }
void __tsan_write_range(void *p, unsigned long bytes) { emulator::look(p, bytes, true, false, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void *caller) { emulator::enter(caller); }
void __tsan_func_exit() { emulator::leave(); }
unsigned char __tsan_atomic8_load(const volatile unsigned char *p, int) { return *p; } // guards of local statics
}
#endif
