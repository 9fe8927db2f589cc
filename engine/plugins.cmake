# The plug-ins for GPUs, built where nvcc is found: libzcc_cuda.so (engine/device/cuda) and, where nccl.h is found too, libzcc_nccl.so
# (engine/transfer/nccl). Nothing needs them.
set(ZCC_CUDA AUTO CACHE STRING "plug-ins for GPUs: AUTO (where nvcc is found), ON (or fail), OFF")
set_property(CACHE ZCC_CUDA PROPERTY STRINGS AUTO ON OFF)

# zcc_left_out(NAME WHY): says so once; fails where the plug-ins were asked for.
function(zcc_left_out name why)
  if(ZCC_CUDA STREQUAL "AUTO" OR ZCC_CUDA STREQUAL "OFF")
    message(STATUS "Left out: ${name} (${why})")
  else()
    message(FATAL_ERROR "${name} cannot be built: ${why}")
  endif()
endfunction()

# zcc_add_plugin(TARGET SYMBOL SOURCES…): lib<TARGET>.so that exports one symbol. It has the engine's small helpers inside and shares the
# public calls with the library that opens it, which is beside it.
function(zcc_add_plugin target symbol)
  add_library(${target} MODULE ${ARGN} ${PROJECT_SOURCE_DIR}/engine/base/status.c ${PROJECT_SOURCE_DIR}/engine/base/memory.c)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/${target}.map CONTENT "{ global: ${symbol}; local: *; };\n")
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/engine ${PROJECT_SOURCE_DIR}/engine/include)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_link_options(${target} PRIVATE -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/generated/${target}.map)
  # A symbol that is missing shows now, not where the plug-in is opened; a sanitizer's are in the program.
  if(NOT ZCC_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  target_link_libraries(${target} PRIVATE zcc)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
endfunction()

file(GLOB ZCC_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/device/cuda/*.c)
file(GLOB ZCC_NCCL_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/transfer/nccl/*.c)
set(ZCC_HAS_CUDA FALSE)
set(ZCC_HAS_NCCL FALSE)
if(ZCC_CUDA STREQUAL "OFF")
  zcc_left_out(libzcc_cuda.so "ZCC_CUDA is OFF")
else()
  find_package(CUDAToolkit 12.0 QUIET)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -x c++ -fsyntax-only /dev/null RESULT_VARIABLE NO_CXX OUTPUT_QUIET ERROR_QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static)
    if(NO_CXX)
      zcc_left_out(libzcc_cuda.so "nvcc needs ${CMAKE_C_COMPILER} to take C++; install g++")
    else()
      set(ZCC_HAS_CUDA TRUE)
    endif()
  elseif(CUDAToolkit_NVCC_EXECUTABLE)
    zcc_left_out(libzcc_cuda.so "CUDA ${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}; 12.0 with libcudart_static.a is needed")
  else()
    zcc_left_out(libzcc_cuda.so "no nvcc was found")
  endif()
endif()

if(ZCC_HAS_CUDA)
  # One call of nvcc, as CMake's own support of the language knows no newer CUDA than itself. No fast math, and no product contracted with
  # a sum: the kernels give the bits that the CPU gives. Code for the two kinds of GPU at hand, PTX for what comes after them. Nothing of the
  # C++ run-time library is needed.
  set(ZCC_CUDA_KERNELS ${CMAKE_CURRENT_BINARY_DIR}/generated/kernels.o)
  add_custom_command(
    OUTPUT ${ZCC_CUDA_KERNELS}
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -c -std=c++17 -O3 -fmad=false -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics,-Wall,-Wextra
            -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90
            -ccbin=${CMAKE_C_COMPILER} -I${PROJECT_SOURCE_DIR}/engine -o ${ZCC_CUDA_KERNELS}
            ${CMAKE_CURRENT_LIST_DIR}/device/cuda/kernels.cu
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/device/cuda/kernels.cu ${CMAKE_CURRENT_LIST_DIR}/device/cuda/kernels.h
    VERBATIM)
  # libcudart is linked in: the plug-in then needs nothing but a driver, which runs programs of its own and of lower major versions, and no
  # toolkit of just this version. The framework in the same process keeps its own libcudart; both work in the device's one primary context.
  zcc_add_plugin(zcc_cuda zcc_device_plugin ${ZCC_CUDA_SOURCES} ${ZCC_CUDA_KERNELS})
  set_source_files_properties(${ZCC_CUDA_KERNELS} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  target_link_libraries(zcc_cuda PRIVATE CUDA::cudart_static)
  install(TARGETS zcc_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  message(STATUS "With libzcc_cuda.so (CUDA ${CUDAToolkit_VERSION})")
endif()

if(ZCC_HAS_CUDA)
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NCCL_INCLUDE AND NCCL_LIBRARY)
    set(ZCC_HAS_NCCL TRUE)
    zcc_add_plugin(zcc_nccl zcc_transport_plugin ${ZCC_NCCL_SOURCES})
    target_include_directories(zcc_nccl SYSTEM PRIVATE ${NCCL_INCLUDE})
    # NCCL itself stays a library of its own: the framework in the same process has it loaded already.
    target_link_libraries(zcc_nccl PRIVATE ${NCCL_LIBRARY} CUDA::cudart_static)
    get_filename_component(NCCL_FOLDER ${NCCL_LIBRARY} DIRECTORY)
    set_target_properties(zcc_nccl PROPERTIES INSTALL_RPATH "$ORIGIN;${NCCL_FOLDER}")
    install(TARGETS zcc_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    message(STATUS "With libzcc_nccl.so (${NCCL_LIBRARY})")
  else()
    message(STATUS "Left out: libzcc_nccl.so (no nccl.h with a libnccl.so was found)")
  endif()
else()
  message(STATUS "Left out: libzcc_nccl.so (it goes with libzcc_cuda.so)")
endif()
