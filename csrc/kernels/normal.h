/* normal.h: the tail of the normal distribution, for z >= 0.
 *
 * On CPUs Phi(-z) = e^(-z^2/2) P(z) / Q(z), within 2^-26.2 in float32 up to z = 14.2, and 2^-54.5 in float64 up to 37.6: least relative
 * errors, of which 2^-26.4 and 2^-58.7 would be left if the coefficients were not rounded. All terms are positive, so that their sums lose
 * nothing. On GPUs, where P and Q at a time take six registers more than 32, Phi(-z) = e^(-z^2/2) T(t) / (z + 4) with
 * t = (z - 4) / (z + 4), within 2^-24.9. */
#ifndef TC_KERNELS_NORMAL_H
#define TC_KERNELS_NORMAL_H

#define TC_NORMAL_TAIL_P_FLOAT32                                                                                                           \
    {                                                                                                                                      \
        0.5f, 0.4376757597f, 0.1827761735f, 0.04047842407f, 0.004093302712f                                                                \
    }
#define TC_NORMAL_TAIL_Q_FLOAT32                                                                                                           \
    {                                                                                                                                      \
        1.0f, 1.673236485f, 1.200597281f, 0.4682588973f, 0.1014710225f, 0.0102602633f                                                      \
    }

#define TC_NORMAL_TAIL_P_FLOAT64                                                                                                           \
    {                                                                                                                                      \
        0.5, 0.826961040873724885, 0.678107745017208914, 0.356188304721942907, 0.131479970884891593, 0.0354755234934926481,                \
            0.00707608032665894413, 0.00103155159121751004, 0.000105584424483666823, 6.90001579030137014e-6, 2.21314008801170501e-7        \
    }
#define TC_NORMAL_TAIL_Q_FLOAT64                                                                                                           \
    {                                                                                                                                      \
        1.0, 2.45180664255031532, 2.81247415619921683, 1.99646451532487713, 0.976757298692792366, 0.346784733637750109,                    \
            0.0914750753952857973, 0.0180006544104341795, 0.00260301216018643045, 0.000265215655719898249, 0.0000172957746754036993,       \
            5.54751952032799365e-7                                                                                                         \
    }

#define TC_NORMAL_TAIL_T_FLOAT32                                                                                                           \
    {                                                                                                                                      \
        0.7552851353f, -0.6078965799f, 0.3871369165f, -0.1865236563f, 0.06040348984f, -0.007524004436f, -0.003510212093f, 0.001568407926f, \
            0.0001746604252f, -0.0001341955978f                                                                                            \
    }

#define TC_NORMAL_FARTHEST_FLOAT32 15.0f /* Phi and the density are 0 from here on */

#endif
