"""Names of kernels as they stand in traces, and what is shown of them."""

from __future__ import annotations

import pytest

from profkit.patterns.kernel_names import short_kernel_name

_SHORT = {
    "vectorized_elementwise_kernel (MulFunctor)": """void at::native::vectorized_elementwise_kernel<4,
 at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >,
 std::array<char*, 3ul> >(int, float)""",
    "reduce_kernel (sum_functor)": """void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float,
 at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)
::{lambda(float, float)#1}>, unsigned int, float, 4> >(int)""",
    "vectorized_elementwise_kernel (GeluCUDAKernelImpl)": """void at::native::vectorized_elementwise_kernel<4,
 at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}> >(int)""",
    "vectorized_layer_norm_kernel": "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)",
    "Kernel (cutlass_80_simt_sgemm_nn)": "void cutlass::Kernel<cutlass_80_simt_sgemm_nn>(cutlass::Params)",
    "run": "std::enable_if<true, void>::type flash::run<1>(int)",
    "gemvx::kernel": "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, false, true>(int, fa)",
    "impl::globalKernel": "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, float*)",
    "Cijk_Alik_Bljk_BBS_BH_Bias_MT256x32x64_MI16x16x1": "Cijk_Alik_Bljk_BBS_BH_Bias_MT256x32x64_MI16x16x1_SN_GSU1_WG16",
    "Cijk_Ailk_Bjlk_HB_MT64x64x16": "Cijk_Ailk_Bjlk_HB_MT64x64x16_SE_APM1_AF0EM1",
    "kentry (Rmsnorm2dFwd)": "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassEEEEEvT1_",
    "Kernel (ImplicitGemmConvolution)": "_ZN7cutlass6KernelINS_4conv6kernel23ImplicitGemmConvolutionIiEEEEvv",
    "add_rmsnorm_kernel": "_ZN5aiter18add_rmsnorm_kernelIDF16bDF16bLi256EEEvPT0_",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs<4096ul>)",
}
_KEPT = (
    "Memcpy HtoD (Pageable -> Device)",
    "ampere_sgemm_128x128_tn",
    "triton_poi_fused_add_0",
    "_Zebra",
    "Cijk_without_a_tile",
    "",
)


@pytest.mark.parametrize("short", _SHORT)
def test_what_a_person_would_say(short: str) -> None:
    assert short_kernel_name(_SHORT[short].replace("\n", "")) == short


@pytest.mark.parametrize("name", _KEPT)
def test_other_names_stay(name: str) -> None:
    assert short_kernel_name(name) == name


def test_a_long_hostile_name_takes_no_time() -> None:
    assert short_kernel_name("void " + "a<" * 100_000) == "a"
    assert short_kernel_name("_ZN999a" + "b" * 100_000) == "a" + "b" * 998
    assert short_kernel_name("_ZN" + "6kernel" * 50_000) == "kernel"
    assert short_kernel_name("(" * 100_000) == "(" * 100_000
