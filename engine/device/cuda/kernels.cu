/* Every value is formed from the same integer and rounding steps as on the CPU (engine/kernels), so that the bits are the same. Built
 * with -fmad=false: no product may be contracted with a sum. */
#include "device/cuda/kernels.h"

namespace {

/* ---- single values, as bits: engine/kernels/convert.c ---- */

struct bf16 {
	uint16_t bits;
};
struct f16 {
	uint16_t bits;
};
struct f32 {
	uint32_t bits;
};

__device__ inline uint32_t wide(f32 x)
{
	return x.bits;
}

__device__ inline uint32_t wide(bf16 x)
{
	uint32_t bits = (uint32_t)x.bits << 16;
	return (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : bits;
}

__device__ inline uint32_t wide(f16 x)
{
	uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16;
	uint32_t magnitude = (uint32_t)(x.bits & 0x7fff) << 13;
	if (magnitude >= 31u << 23) {
		uint32_t special = magnitude + ((255u - 31u) << 23);
		return sign | special | ((special & 0x7fffff) != 0 ? 0x400000 : 0);
	}
	if (magnitude < 1u << 23)
		return sign | __float_as_uint(__fsub_rn(__uint_as_float(magnitude + (113u << 23)), __uint_as_float(113u << 23)));
	return sign | (magnitude + ((127u - 15u) << 23));
}

__device__ inline void narrow(uint32_t bits, f32 *y)
{
	y->bits = bits;
}

__device__ inline void narrow(uint32_t bits, bf16 *y)
{
	bool nan = (bits & 0x7fffffff) > 0x7f800000;
	y->bits = (uint16_t)(nan ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

__device__ inline void narrow(uint32_t bits, f16 *y)
{
	uint32_t sign = (bits >> 16) & 0x8000;
	uint32_t magnitude = bits & 0x7fffffff;
	uint32_t result;
	if (magnitude >= (127u + 16u) << 23) {
		result = magnitude > 0x7f800000 ? 0x7e00 | ((magnitude >> 13) & 0x3ff) : 0x7c00;
	} else if (magnitude < 113u << 23) {
		uint32_t anchor = (127u - 1u) << 23;
		result = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), __uint_as_float(anchor))) - anchor;
	} else {
		result = (magnitude - ((127u - 15u) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
	}
	y->bits = (uint16_t)(sign | result);
}

template <typename T> struct alignas(sizeof(T) * ZCCI_CUDA_VECTOR) vector {
	T at[ZCCI_CUDA_VECTOR];
};

__device__ inline int64_t first_item()
{
	return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline int64_t item_step()
{
	return (int64_t)gridDim.x * blockDim.x;
}

template <typename To, typename From> __global__ void __launch_bounds__(256) cast(const zcci_cuda_cast work)
{
	To *target = static_cast<To *>(work.target);
	const From *source = static_cast<const From *>(work.source);
	for (int64_t v = first_item(); v < work.vectors; v += item_step()) {
		vector<From> in = reinterpret_cast<const vector<From> *>(source)[v];
		vector<To> out;
#pragma unroll
		for (int k = 0; k < ZCCI_CUDA_VECTOR; k++)
			narrow(wide(in.at[k]), &out.at[k]);
		reinterpret_cast<vector<To> *>(target)[v] = out;
	}
	for (int64_t i = work.vectors * ZCCI_CUDA_VECTOR + first_item(); i < work.elems; i += item_step())
		narrow(wide(source[i]), &target[i]);
}

/* ---- the moving average: engine/kernels/lerp.c ---- */

/* Which NaN comes out is the processor's choice: one is written everywhere. */
__device__ inline float average(float ema, float param, float weight)
{
	float result = __fmaf_rn(weight, __fsub_rn(param, ema), ema);
	return result != result ? __uint_as_float(0x7fc00000) : result;
}

template <typename From> __global__ void __launch_bounds__(256) lerp(const zcci_cuda_lerp work)
{
	const From *param = static_cast<const From *>(work.param);
	for (int64_t v = first_item(); v < work.vectors; v += item_step()) {
		vector<From> in = reinterpret_cast<const vector<From> *>(param)[v];
		vector<float> sum = reinterpret_cast<vector<float> *>(work.ema)[v];
#pragma unroll
		for (int k = 0; k < ZCCI_CUDA_VECTOR; k++)
			sum.at[k] = average(sum.at[k], __uint_as_float(wide(in.at[k])), work.weight);
		reinterpret_cast<vector<float> *>(work.ema)[v] = sum;
	}
	for (int64_t i = work.vectors * ZCCI_CUDA_VECTOR + first_item(); i < work.elems; i += item_step())
		work.ema[i] = average(work.ema[i], __uint_as_float(wide(param[i])), work.weight);
}

/* ---- strided to strided ---- */

/* 64-bit divisions are slow; most numbers are small. */
__device__ inline uint64_t quotient(uint64_t a, uint64_t b)
{
	return (a | b) >> 32 == 0 ? (uint32_t)a / (uint32_t)b : a / b;
}

template <typename T> __global__ void __launch_bounds__(256) strided(const zcci_cuda_strided work)
{
	int64_t row_step = (int64_t)gridDim.x * blockDim.y;
	int64_t step = (int64_t)gridDim.y * blockDim.x;
	int64_t first = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
	for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < work.rows; row += row_step) {
		T *target = static_cast<T *>(work.target);
		const T *source = static_cast<const T *>(work.source);
		int64_t rest = row;
		for (int axis = work.axes - 1; axis >= 0; axis--) {
			int64_t above = (int64_t)quotient((uint64_t)rest, (uint64_t)work.extents[axis]);
			int64_t index = rest - above * work.extents[axis];
			target += index * work.target_strides[axis];
			source += index * work.source_strides[axis];
			rest = above;
		}
		for (int64_t i = first; i < work.inner; i += step)
			target[i * work.target_step] = source[i * work.source_step];
	}
}

}

#define CAST(to, from) {"cast_" #to "_" #from, reinterpret_cast<const void *>(&cast<to, from>), sizeof(zcci_cuda_cast)}
#define LERP(from) {"lerp_" #from, reinterpret_cast<const void *>(&lerp<from>), sizeof(zcci_cuda_lerp)}
#define STRIDED(bytes, type) {"strided_" #bytes, reinterpret_cast<const void *>(&strided<type>), sizeof(zcci_cuda_strided)}

extern "C" const zcci_cuda_kernel zcci_cuda_kernels[] = {
	CAST(f16, f32),
	CAST(bf16, f32),
	CAST(f32, f16),
	CAST(f32, bf16),
	CAST(f16, bf16),
	CAST(bf16, f16),
	LERP(f32),
	LERP(bf16),
	LERP(f16),
	STRIDED(1, uint8_t),
	STRIDED(2, uint16_t),
	STRIDED(4, uint32_t),
	STRIDED(8, uint2),
	STRIDED(16, uint4),
	{nullptr, nullptr, 0},
};
