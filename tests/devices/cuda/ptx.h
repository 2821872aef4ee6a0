// SPDX-License-Identifier: Apache-2.0
//
// Kernels as PTX text, which the driver itself compiles for the GPU at hand, so that the device is
// tested without a compiler.
#pragma once

namespace kvr {

// add(const float* a, const float* b, float* out, int n): out[i] = a[i] + b[i].
// smem_sum(unsigned* out, int words): one thread per block writes 1…words into dynamic shared
//   memory and then out[blockIdx.x] = their sum.
// store(unsigned* where): *where = 1.
// trap(): faults.
inline constexpr char kPtx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];

.visible .entry add(.param .u64 pa, .param .u64 pb, .param .u64 pout, .param .u32 pn)
{
  .reg .pred %p;
  .reg .b32 %r<5>;
  .reg .f32 %f<3>;
  .reg .b64 %d<5>;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.s32 %r3, %r0, %r1, %r2;
  ld.param.u32 %r4, [pn];
  setp.ge.s32 %p, %r3, %r4;
  @%p ret;
  ld.param.u64 %d0, [pa];
  ld.param.u64 %d1, [pb];
  ld.param.u64 %d2, [pout];
  mul.wide.s32 %d3, %r3, 4;
  add.u64 %d4, %d0, %d3;
  ld.global.f32 %f0, [%d4];
  add.u64 %d4, %d1, %d3;
  ld.global.f32 %f1, [%d4];
  add.f32 %f2, %f0, %f1;
  add.u64 %d4, %d2, %d3;
  st.global.f32 [%d4], %f2;
  ret;
}

.visible .entry smem_sum(.param .u64 pout, .param .u32 pwords)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %d<2>;
  ld.param.u32 %r0, [pwords];
  mov.u32 %r1, 0;
  mov.u32 %r2, dynamic;
WRITE:
  setp.ge.u32 %p, %r1, %r0;
  @%p bra READ;
  add.u32 %r1, %r1, 1;
  st.shared.u32 [%r2], %r1;
  add.u32 %r2, %r2, 4;
  bra WRITE;
READ:
  mov.u32 %r3, 0;
LOOP:
  setp.eq.u32 %p, %r1, 0;
  @%p bra DONE;
  sub.u32 %r1, %r1, 1;
  sub.u32 %r2, %r2, 4;
  ld.shared.u32 %r4, [%r2];
  add.u32 %r3, %r3, %r4;
  bra LOOP;
DONE:
  mov.u32 %r5, %ctaid.x;
  ld.param.u64 %d0, [pout];
  mul.wide.u32 %d1, %r5, 4;
  add.u64 %d0, %d0, %d1;
  st.global.u32 [%d0], %r3;
  ret;
}

.visible .entry store(.param .u64 pwhere)
{
  .reg .b32 %r;
  .reg .b64 %d;
  ld.param.u64 %d, [pwhere];
  mov.u32 %r, 1;
  st.global.u32 [%d], %r;
  ret;
}

.visible .entry trap()
{
  trap;
  ret;
}
)";

// cluster_size(unsigned* out): out[blockIdx.x] = the number of blocks in the block's cluster.
inline constexpr char kClusterPtx[] = R"(
.version 7.8
.target sm_90
.address_size 64

.visible .entry cluster_size(.param .u64 pout)
{
  .reg .b32 %r<2>;
  .reg .b64 %d<2>;
  mov.u32 %r0, %cluster_nctarank;
  mov.u32 %r1, %ctaid.x;
  ld.param.u64 %d0, [pout];
  mul.wide.u32 %d1, %r1, 4;
  add.u64 %d0, %d0, %d1;
  st.global.u32 [%d0], %r0;
  ret;
}
)";

// mark(unsigned* out, unsigned value): out[blockIdx.x] = value.
// spin(unsigned* out, unsigned value, unsigned microseconds): *out = value, but late. Lets its
//   dependents start at once where their edge is programmatic.
// increment(unsigned* out): ++*out, after what a programmatic edge waits for.
inline constexpr char kMarkPtx[] = R"(
.version 7.8
.target sm_90
.address_size 64

.visible .entry mark(.param .u64 pout, .param .u32 pvalue)
{
  .reg .b32 %r<2>;
  .reg .b64 %d<2>;
  mov.u32 %r0, %ctaid.x;
  ld.param.u32 %r1, [pvalue];
  ld.param.u64 %d0, [pout];
  mul.wide.u32 %d1, %r0, 4;
  add.u64 %d0, %d0, %d1;
  st.global.u32 [%d0], %r1;
  ret;
}

.visible .entry spin(.param .u64 pout, .param .u32 pvalue, .param .u32 pmicroseconds)
{
  .reg .pred %p;
  .reg .b32 %r<2>;
  .reg .b64 %d<4>;
  griddepcontrol.launch_dependents;
  ld.param.u32 %r0, [pmicroseconds];
  mul.wide.u32 %d0, %r0, 1000;
  mov.u64 %d1, %globaltimer;
  add.u64 %d1, %d1, %d0;
AGAIN:
  mov.u64 %d2, %globaltimer;
  setp.lt.u64 %p, %d2, %d1;
  @%p bra AGAIN;
  ld.param.u32 %r1, [pvalue];
  ld.param.u64 %d3, [pout];
  st.global.u32 [%d3], %r1;
  ret;
}

.visible .entry increment(.param .u64 pout)
{
  .reg .b32 %r;
  .reg .b64 %d;
  griddepcontrol.wait;
  ld.param.u64 %d, [pout];
  ld.global.u32 %r, [%d];
  add.u32 %r, %r, 1;
  st.global.u32 [%d], %r;
  ret;
}
)";

// sum_of(unsigned* out, unsigned a, unsigned b, unsigned c): out[blockIdx.x] = a + b + c. In a
// module of its own.
inline constexpr char kSumOfPtx[] = R"(
.version 7.0
.target sm_80
.address_size 64

.visible .entry sum_of(.param .u64 pout, .param .u32 pa, .param .u32 pb, .param .u32 pc)
{
  .reg .b32 %r<4>;
  .reg .b64 %d<2>;
  mov.u32 %r0, %ctaid.x;
  ld.param.u32 %r1, [pa];
  ld.param.u32 %r2, [pb];
  ld.param.u32 %r3, [pc];
  add.u32 %r1, %r1, %r2;
  add.u32 %r1, %r1, %r3;
  ld.param.u64 %d0, [pout];
  mul.wide.u32 %d1, %r0, 4;
  add.u64 %d0, %d0, %d1;
  st.global.u32 [%d0], %r1;
  ret;
}
)";

}  // namespace kvr
