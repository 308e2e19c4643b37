/* box_muller.h: normals from uniforms (Box and Muller 1958), in blocks. */
#ifndef TC_CORE_BOX_MULLER_H
#define TC_CORE_BOX_MULLER_H

#include <stdint.h>

#define TC_BOX_MULLER_BLOCK 16 /* values: the first half are radii, the second half angles */

/* x (n), uniform in [0, 1), becomes normal in place; what is left of n after whole blocks stays. */
void tc_box_muller_f32(float *x, int64_t n, float mean, float std);
void tc_box_muller_f64(double *x, int64_t n, double mean, double std);

#endif
