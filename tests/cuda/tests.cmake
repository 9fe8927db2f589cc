# On a machine with a GPU: all of it on the real one, and what it can do.
add_test(NAME device COMMAND ${PROJECT_SOURCE_DIR}/tests/device.sh ${PROJECT_BINARY_DIR})
set_tests_properties(device PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS device)

# The CUDA plug-in over a stand-in for the CUDA runtime (standin.h), which is linked in place of libcudart. It lies in a folder with what is
# to find it there: a library looks for plug-ins beside itself, and so does a program that holds the engine.
if(NOT ZCC_HAS_CUDA)
  return()
endif()
set(STANDIN_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/cuda)
file(MAKE_DIRECTORY ${STANDIN_FOLDER})
file(GLOB KERNEL_REFERENCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/engine/kernels/*.c)
file(GLOB STANDIN_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/standin*.c)
zcc_add_plugin(zcc_cuda_standin "zcc_device_plugin; standin_*" ${ZCC_CUDA_SOURCES} ${STANDIN_SOURCES} ${KERNEL_REFERENCES}
               ${PROJECT_SOURCE_DIR}/engine/base/threads.c)
target_link_libraries(zcc_cuda_standin PRIVATE Threads::Threads m)
set_target_properties(zcc_cuda_standin PROPERTIES OUTPUT_NAME zcc_cuda LIBRARY_OUTPUT_DIRECTORY ${STANDIN_FOLDER})

# zcc_standin_link(PROGRAM): a name for a program in that folder. A program looks for plug-ins beside the name it was started by.
function(zcc_standin_link program)
  file(CREATE_LINK ${CMAKE_CURRENT_BINARY_DIR}/${program} ${STANDIN_FOLDER}/${program} SYMBOLIC)
endfunction()

file(GLOB CUDA_TESTS CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.c)
foreach(source ${CUDA_TESTS})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_include_directories(${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(${name} PRIVATE zcc_objects PkgConfig::CMOCKA ${CMAKE_DL_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${STANDIN_FOLDER})
  add_dependencies(${name} zcc_cuda_standin)
  add_test(NAME cuda.${name} COMMAND ${name})
  set_tests_properties(cuda.${name} PROPERTIES TIMEOUT ${ZCC_TEST_SECONDS} SKIP_RETURN_CODE 77 LABELS cuda)
endforeach()

# What staging does, on that device too.
foreach(name test_copyback test_copyback_adamw test_copyback_faults test_copyback_gradients test_ema test_ema_faults test_offload test_offload_memory)
  zcc_standin_link(${name})
  add_test(NAME cuda.${name} COMMAND ${STANDIN_FOLDER}/${name})
  set_tests_properties(cuda.${name} PROPERTIES TIMEOUT ${ZCC_TEST_SECONDS} LABELS cuda ENVIRONMENT "ZCC_TEST_DEVICE=cuda:0")
endforeach()
