"""What kernels do, by their names as public traces have them."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter

import pytest

from profkit.derive.device.kernel_families import _WORDS, Family, _Words, family_of_kernel

NAMES = {
    Family.COMMUNICATION: (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
    ),
    Family.ATTENTION: (
        "fmha_cutlassB_f32_aligned_64x64_k64_dropout_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<float>)",
        "void cutlass::device_kernel<flash::FlashAttnBwd<flash::CollectiveMainloopBwd<2> > >(int)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
        "triton_tem_fused_flex_attention_3",
        "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40BlockFmha",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u>(flashinfer::Params)",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(float*)",
        "_fwd_grouped_kernel_stage1",
        "sage_fwd",
    ),
    Family.EXPERTS: (
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu",
        "void moe::dev::finalize::finalizeKernel<1>",
    ),
    Family.RECURRENT: (
        "void RNN_blockPersist_bp_LSTM_FMA<float, float, float, 64>(block_bp_args_lstm<float, float>)",
        "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16> >(SSMParamsBase)",
        "_chunk_state_fwd_kernel",
    ),
    Family.CONVOLUTION: (
        "sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused::Data<float>)",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32_wt32x32x8",
        "volta_scudnn_128x64_relu_small_nn_v1",
        "triton_tem_fused_convolution_2",
        "gfx9_f3x2_fp32_stride1_group",
        "void cask__5x_cudnn::computeOffsetsKernel<false, false>(cask__5x_cudnn::ComputeOffsetsParams)",
    ),
    Family.PRODUCT: (
        "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1>(cutlass_80_tensorop::Params)",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(int)",
        "void splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)",
        "triton_tem_fused_addmm_relu_4",
        "void gptq_marlin::Marlin<__half, 256, 1, 8, 8>(int4 const*)",
        "_lora_shrink_kernel",
    ),
    Family.NORMALISATION: (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct)",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8ELb0ELb0ELb1ELi1EEEvPT0_",
        "triton_per_fused__to_copy_add_native_layer_norm_backward_view_10",
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)",
        "void cuComputeGradInput<float, float, float>(float const*)",
    ),
    Family.EMBEDDING: ("split_embedding_codegen_forward_unweighted_kernel<float, float, long>(int)",),
    Family.QUANTISATION: (
        "void cuda::per_token_cast_to_fp8_with_channels<__nv_bfloat16, 128>(int)",
        "void fbgemm_gpu::(anonymous namespace)::_FP8rowwise_to_float_cuda_kernel<float>(unsigned char const*)",
    ),
    Family.SOFTMAX: ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, LogSoftMax>(float*)",),
    Family.LOSS: ("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)",),
    Family.POOLING: ("void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float>(float const*)",),
    Family.OPTIMIZER: (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<ListMetadata<2> >(int)",
        "void kOptimizerStatic8bit2StateBlockwise<float, 1, 256, 1>(float*)",
    ),
    Family.SORTING: (
        "void cub::DeviceRadixSortOnesweepKernel<cub::Policy900>(int)",
        "void at::native::(anonymous namespace)::write_indices<long>(long*, int)",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, 4u>(float*)",
    ),
    Family.RANDOM: (
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float>(x)",
        "void flashinfer::sampling::ChainSpeculativeSampling<1024u>(float*)",
    ),
    Family.INDEXING: (
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<1> >(long)",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)",
        "void segment_csr_kernel<float, (ReductionType)0, 1>(float const*)",
    ),
    Family.LAYOUT: (
        "void at::native::elementwise_kernel<128, 2, gpu_kernel_impl<at::native::direct_copy_kernel_cuda(int)> >(int)",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(int)",
        "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16>(int)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)",
        "void flashinfer::AppendPagedKVCacheKernel<128u, 8u>(flashinfer::paged_kv_t<float, int>)",
        "void at::native::(anonymous namespace)::transform_bias_rescale_qkv_kernel<float, float, true>(float)",
    ),
    Family.REDUCTION: (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(int)",
        "triton_red_fused_gelu_gelu_backward_sum_view_9",
    ),
    Family.ELEMENTWISE: (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
        "triton_poi_fused_addmm_gelu_view_15",
        "void at::native::elementwise_kernel<128, 4, at::native::(anonymous namespace)::masked_fill_kernel(int)>(int)",
        "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16>(__nv_bfloat16*)",
        "void flashinfer::BatchQKApplyRotaryPosIdsKernel<true, 128u>(float*)",
        "at::native::amp_update_scale_cuda_kernel(float*, int*, float const*, double, double, int)",
    ),
    Family.SPARSE: ("void convert_CooToCsr_kernel<0>(int const*, int, int, int*)",),
    Family.OTHER: ("my_kernel(int*)", "triton__0d1d2de", "", "_fwd_kernel_aligned_0d1d2d3d45d6de"),
}


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, names in NAMES.items() for name in names])
def test_a_name_tells_what_a_kernel_does(family, name):
    assert family_of_kernel(name) is family


@pytest.mark.parametrize(
    ("pattern", "each"),
    [
        ("soft_?max|Soft[Mm]ax", (("soft", "soft_?max"), ("Soft", "Soft[Mm]ax"))),
        ("(?<!fb)gemm|dot_kernel", (("gemm", "(?<!fb)gemm"), ("dot_kernel", ""))),
        (
            r"bmm_\w*MxE|set_(?:mla_)?kv|x(?:a|(?:b|c))yz",
            (("bmm_", r"bmm_\w*MxE"), ("set_", "set_(?:mla_)?kv"), ("yz", "x(?:a|(?:b|c))yz")),
        ),
    ],
)
def test_a_word_is_looked_for_by_the_text_that_it_always_holds(pattern, each):
    assert _Words.of(pattern).each == each


def test_words_are_found_as_the_whole_pattern_would_be():
    every = [name for names in NAMES.values() for name in names]
    for _, pattern in _WORDS:
        assert [_Words.of(pattern).search(name) for name in every] == [bool(re.search(pattern, name)) for name in every]


def test_every_family_but_rare_ones_has_a_name_here():
    assert set(Family) - set(NAMES) == {Family.FOURIER, Family.DECOMPOSITION}


def test_a_name_of_any_length_is_read_at_once():
    assert family_of_kernel("void f<" + "std::tuple<" * 200_000) is Family.OTHER


@pytest.mark.slow
def test_hardly_any_time_of_public_traces_goes_to_kernels_without_a_family(corpus):
    taken = Counter[str]()
    for path in sorted([*corpus.glob("kineto/*.json.gz"), *corpus.glob("h100/runs/*/*.json.gz")]):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        for event in events:
            if str(event.get("cat")).lower() == "kernel" and event.get("ph") == "X":
                taken[event["name"]] += float(event["dur"])
    unknown = sum(us for name, us in taken.items() if family_of_kernel(name) is Family.OTHER)
    assert unknown < 0.02 * taken.total()
