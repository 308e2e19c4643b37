/* status.c: error messages and the text of shapes. */
#include "status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The largest n <= length at which UTF-8 text may be cut: never inside a character, so that a host language can decode
 * a message that quotes a long name. */
static size_t utf8_cut(const char *text, size_t length)
{
    while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80) length--;
    return length;
}

tc_status(tc_fail)(tc_error *err, tc_status status, const char *format, ...)
{
    if (!err) return status;
    /* Formatted on the stack first: an argument may be the message in `err`. */
    char message[sizeof err->message];
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (written < 0) {
        snprintf(message, sizeof message, "an error whose message could not be formatted: %s", format);
    } else if ((size_t)written >= sizeof message) {
        strcpy(message + utf8_cut(message, sizeof message - sizeof "..."), "...");
    }
    err->status = status;
    memcpy(err->message, message, sizeof message);
    return status;
}

const char *tc_shape_text(char buffer[TC_SHAPE_TEXT], int ndim, const int64_t *shape)
{
    static const char cut[] = "...)";
    size_t used = 0;
    buffer[used++] = '(';
    for (int i = 0; i < ndim; i++) {
        char axis[24]; /* "-9223372036854775808, " */
        const char *after = i + 1 < ndim ? ", " : ndim == 1 ? "," : "";
        const size_t length = (size_t)snprintf(axis, sizeof axis, "%" PRId64 "%s", shape[i], after);
        if (used + length + sizeof cut > TC_SHAPE_TEXT) {
            memcpy(buffer + used, cut, sizeof cut);
            return buffer;
        }
        memcpy(buffer + used, axis, length);
        used += length;
    }
    buffer[used++] = ')';
    buffer[used] = '\0';
    return buffer;
}
