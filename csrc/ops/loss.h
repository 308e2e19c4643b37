/* loss.h: reduces the losses of elements or rows to one number, and gives each of them its gradient. */
#ifndef TC_OPS_LOSS_H
#define TC_OPS_LOSS_H

#include "op.h"

/* *out: `losses` themselves, their sum, or their sum divided by `total`, or unless it is NULL by the number at `total_at`, of
 * s->statistics; of s->statistics, as `losses` are, and owned by the scope. */
TC_CHECKED tc_status tc_reduce_losses(tc_scope *s, tc_tensor **out, tc_tensor *losses, tc_reduction reduction, double total,
                                      tc_tensor *total_at);

/* *dloss, the gradient of the result, becomes that of each loss, not cast or laid out yet: a tensor without axes where it is one number for
 * all of them. */
TC_CHECKED tc_status tc_spread_gradient(tc_scope *s, tc_tensor **dloss, tc_reduction reduction, double total, tc_tensor *total_at);

#endif
