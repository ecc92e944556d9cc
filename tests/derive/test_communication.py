"""Kernels that exchange data are told by their names from others that are named alike."""

from __future__ import annotations

import re

import pytest

from profkit.derive.device.communication import LIBRARIES, function_of, is_communication
from tests.traces import facts_of, kernel, op

EXCHANGING = (
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(ncclSymkDevWorkArgs const*)",
    "mscclKernel_Sum_float",
    "void mscclpp::collective::allreduceAllPairs<float>(float*, float*, float*)",
    "kernel(int, mscclpp::DeviceHandle<mscclpp::MemoryChannel>*)",
    "void allreduce_kernel_vec32<float>(ucc_tl_cuda_nvls_control_t*, unsigned int)",
    "void UCC_REDUCE_CUDA_DEFAULT_SUM<float, true>(ucc_eee_task_reduce_t, unsigned short)",
    "void executor_kernel<true>(ucc_ec_cuda_executor_state_t*, int)",
    "void nvshmemi_transfer_rma_kernel(int)",
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)",
    "void dpsk::ep::internode::cached_notify<false>(int, int, int)",
    "void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)",
    "void deep_ep::internode_ll::combine<true, 7168, 9>(void*, void*, void*)",
    "void deep_ep::intranode::notify_dispatch<8>(int const*, int*)",
    "void deep_ep::elastic::dispatch_impl<8, 4>(void*)",
    "EpDispatchIntraNodeKernel_bf16",
    "void mori::moe::EpCombineInterNodeV1Kernel<hip_bfloat16>(mori::moe::EpDispatchCombineArgs<hip_bfloat16>)",
    "a2a_dispatch_send_kernel",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(int const*)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<2, 8>(int)",
    "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<8>(int)",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
    "void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int)",
    "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 8>",
    "void vllm::cross_device_reduce_2stage<c10::Half, 4>(vllm::RankData*, vllm::RankSignals)",
    "_ZN5aiter28cross_device_reduce_1stage_xIDF16_Li8EEEvPNS_8RankDataE",
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 4>, true>, __half>()",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)",
    "(anonymous namespace)::barrier_kernel(unsigned int**, unsigned long)",
    "oneShotAllReduceKernel",
    "void oneapi::ccl::kernel<int>()",
)
COMPUTING = (
    "void at::native::reduce_kernel<512, 1>",
    "ampere_sgemm_128x64_tn",
    "void cutlass::Kernel<gather>",
    "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, cross_entropy>(float*)",
    "void (anonymous namespace)::groupnorm_kernel_dispatch_up<__hip_bfloat16, 1024u>(unsigned int)",
    "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, long*>>(int)",
    "void moe::dispatch<int>(int*)",
    "void step::internode_statistics<int>(int*)",
    "void flash::flash_fwd_splitkv_combine_kernel<flash::Params>(flash::Params)",
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
    "void deep_ep::elastic::dispatch_copy_epilogue_impl<8>(void*)",
    "void EpDispatchCopyToStaging<float>(int)",
    "void tensorrt_llm::kernels::moe_comm::moeA2APrepareDispatchKernel(int*)",
    "void cutlass::device_kernel<flash::FlashAttnBwd<flash::CollectiveMainloopBwd<2> > >(Params)",
    "triton_poi_fused_add_all_reduce_4",
    "triton_per_fused_all_gather_into_tensor_mul_0",
    "void blockAllReduceSum<float, 4>(float*)",
    "void warp_all_reduce_kernel<float>(float*)",
    "void softmax<float, WarpAllReduce<SumOp> >(float*)",
    "void small_gather_kernel<int>(int*)",
    "void scatter_reduce_kernel<int>(int*)",
    "void success_reduce_kernel(int*)",
    "void fuccess::kernel(int*)",
    "void at::native::broadcast_add_kernel(float*)",
    "void named_barrier_kernel(float*)",
    "",
)


@pytest.mark.parametrize("name", EXCHANGING)
def test_kernels_of_communication_libraries_are_recognised(name):
    assert is_communication(name)


@pytest.mark.parametrize("name", COMPUTING)
def test_names_that_are_alike_stay_computing(name):
    assert not is_communication(name)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_each_library_has_a_source_and_recognises_one_of_the_names(library):
    assert library.source
    patterns = [library.types, library.functions]
    found = [name for name in EXCHANGING for kind in patterns if kind and re.search(kind, name.replace("void ", ""))]
    assert found


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("void vllm::cross_device_reduce_1stage<float, 8>(int)", "vllm::cross_device_reduce_1stage"),
        ("_ZN4vllm26cross_device_reduce_1stageIfLi8EEEvi", "vllm::cross_device_reduce_1stage"),
        ("_ZN2at6native12_GLOBAL__N_1a13reduce_kernelIfEEvi", "at::native"),
        ("void (anonymous namespace)::two_shot<float>(int)", "two_shot"),
        ("_Z5abc", "abc"),
        ("_Z999abc", "abc"),
        ("nccl:all_reduce", "nccl:all_reduce"),
    ],
)
def test_the_function_is_read_from_names_of_either_form(name, function):
    assert function_of(name) == function


def test_hidden_communication_does_not_count_as_computing():
    facts = facts_of(
        [
            op("a", 0, 1),
            kernel("sgemm", 10, 80),
            kernel("void deep_ep::internode::combine<false>(int4*)", 5, 90, stream=27),
            kernel("void moe_combine<float>(float*)", 95, 5),
        ]
    )
    assert facts.device.computing.total_ns == 85_000
    assert facts.device.communicating.total_ns == 90_000
