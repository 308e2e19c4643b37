/* test_status.c: error messages, the text of shapes, and dtypes. */
#include "core/status.h"

#include "check.h"

#include <signal.h>

static void messages(void)
{
    tc_error err = {TC_OK, "before"};
    CHECK_EQUAL(tc_fail(&err, TC_ERROR_VALUE, "q has head size %d but k has %d", 8, 16), TC_ERROR_VALUE);
    CHECK_EQUAL(err.status, TC_ERROR_VALUE);
    CHECK(strcmp(err.message, "q has head size 8 but k has 16") == 0);
    CHECK_EQUAL(tc_fail(&err, TC_ERROR_TYPE, "argument x: %s", err.message), TC_ERROR_TYPE); /* a message may quote the one it replaces */
    CHECK(strcmp(err.message, "argument x: q has head size 8 but k has 16") == 0);
    CHECK_EQUAL(tc_fail(NULL, TC_ERROR_STATE, "nobody asked"), TC_ERROR_STATE);
}

/* However long the text, the message ends within its buffer, says that it was cut, and is whole UTF-8. */
static void long_messages(void)
{
    static const char *const characters[] = {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}; /* 1 to 4 bytes */
    for (int width = 1; width <= 4; width++) {
        for (int shift = 0; shift < 4; shift++) {
            char text[1024] = "";
            for (int i = 0; i < shift; i++) strcat(text, "-");
            while (strlen(text) + 5 < sizeof text) strcat(text, characters[width - 1]);
            tc_error err;
            CHECK_EQUAL(tc_fail(&err, TC_ERROR_VALUE, "%s", text), TC_ERROR_VALUE);
            const size_t length = strlen(err.message);
            CHECK(length < sizeof err.message && length >= sizeof err.message - 4);
            CHECK(strcmp(err.message + length - 3, "...") == 0);
            CHECK_EQUAL((length - 3 - (size_t)shift) % (size_t)width, 0);
            CHECK(strncmp(err.message, text, length - 3) == 0);
        }
    }
    char exact[sizeof((tc_error *)0)->message];
    memset(exact, 'y', sizeof exact - 1);
    exact[sizeof exact - 1] = '\0';
    tc_error err;
    CHECK_EQUAL(tc_fail(&err, TC_ERROR_VALUE, "%s", exact), TC_ERROR_VALUE);
    CHECK(strcmp(err.message, exact) == 0); /* it fits: nothing is cut */
}

static void shapes(void)
{
    char text[TC_SHAPE_TEXT];
    CHECK(strcmp(tc_shape_text(text, 0, NULL), "()") == 0);
    CHECK(strcmp(tc_shape_text(text, 1, (const int64_t[]){5}), "(5,)") == 0);
    CHECK(strcmp(tc_shape_text(text, 3, (const int64_t[]){2, 3, 4}), "(2, 3, 4)") == 0);
    CHECK(strcmp(tc_shape_text(text, 2, (const int64_t[]){0, -1}), "(0, -1)") == 0);
    int64_t shape[TC_MAX_DIMS];
    for (int i = 0; i < TC_MAX_DIMS; i++) shape[i] = INT64_MIN;
    for (int ndim = 0; ndim <= TC_MAX_DIMS; ndim++) {
        memset(text, 'z', sizeof text);
        CHECK(tc_shape_text(text, ndim, shape) == text);
        CHECK(memchr(text, '\0', sizeof text) != NULL);
        CHECK(text[0] == '(' && text[strlen(text) - 1] == ')');
    }
    CHECK_TEXT(text, "(-9223372036854775808, ");
    CHECK_TEXT(text, ", ...)");
}

/* torch.promote_types, in the order of the enumeration. */
static const tc_dtype promoted[TC_DTYPE_COUNT][TC_DTYPE_COUNT] = {
    {TC_FLOAT32, TC_FLOAT64, TC_FLOAT32, TC_FLOAT32, TC_FLOAT32, TC_FLOAT32, TC_FLOAT32, TC_FLOAT32},
    {TC_FLOAT64, TC_FLOAT64, TC_FLOAT64, TC_FLOAT64, TC_FLOAT64, TC_FLOAT64, TC_FLOAT64, TC_FLOAT64},
    {TC_FLOAT32, TC_FLOAT64, TC_FLOAT16, TC_FLOAT32, TC_FLOAT16, TC_FLOAT16, TC_FLOAT16, TC_FLOAT16},
    {TC_FLOAT32, TC_FLOAT64, TC_FLOAT32, TC_BFLOAT16, TC_BFLOAT16, TC_BFLOAT16, TC_BFLOAT16, TC_BFLOAT16},
    {TC_FLOAT32, TC_FLOAT64, TC_FLOAT16, TC_BFLOAT16, TC_INT64, TC_INT64, TC_INT64, TC_INT64},
    {TC_FLOAT32, TC_FLOAT64, TC_FLOAT16, TC_BFLOAT16, TC_INT64, TC_INT32, TC_INT32, TC_INT32},
    {TC_FLOAT32, TC_FLOAT64, TC_FLOAT16, TC_BFLOAT16, TC_INT64, TC_INT32, TC_UINT8, TC_UINT8},
    {TC_FLOAT32, TC_FLOAT64, TC_FLOAT16, TC_BFLOAT16, TC_INT64, TC_INT32, TC_UINT8, TC_BOOL},
};

static void dtypes(void)
{
    static const struct {
        const char *name;
        size_t size;
        bool is_float;
    } expected[TC_DTYPE_COUNT] = {{"float32", 4, true}, {"float64", 8, true}, {"float16", 2, true}, {"bfloat16", 2, true},
                                  {"int64", 8, false},  {"int32", 4, false},  {"uint8", 1, false},  {"bool", 1, false}};
    for (int a = 0; a < TC_DTYPE_COUNT; a++) {
        CHECK(strcmp(tc_dtype_name((tc_dtype)a), expected[a].name) == 0);
        CHECK_EQUAL(tc_dtype_size((tc_dtype)a), expected[a].size);
        CHECK_EQUAL(tc_dtype_is_float((tc_dtype)a), expected[a].is_float);
        for (int b = 0; b < TC_DTYPE_COUNT; b++) CHECK_EQUAL(tc_dtype_promote((tc_dtype)a, (tc_dtype)b), promoted[a][b]);
    }
}

/* Ends the program where it is false in builds with assertions; elsewhere it is not even evaluated. */
static void invariants(void)
{
    int evaluated = 0;
    TC_ASSERT(++evaluated > 0);
#ifdef TC_ASSERTIONS
    CHECK_EQUAL(evaluated, 1);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        TC_ASSERT(evaluated == 2);
        _exit(0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
    CHECK_EQUAL(evaluated, 0);
    TC_ASSERT(evaluated == 2);
#endif
}

int main(void)
{
    messages();
    invariants();
    long_messages();
    shapes();
    dtypes();
    return check_finish();
}
