# find_package(divvy), or find_package(Divvy), defines divvy::divvy: the headers, libdivvy.so and its
# main(). A program links it, and so does a program library (--program=lib.so). A program with its own
# main() links divvy::runtime.
include(CMakeFindDependencyMacro)
find_dependency(absl)
find_dependency(Threads)

# The folder of the library. The headers of the SDK are in include/, those of the Debian package
# libdivvy-dev in /usr/include/divvy.
get_filename_component(_divvy_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(_divvy_include "${_divvy_lib}/../include" ABSOLUTE)
if(NOT EXISTS "${_divvy_include}/divvy.h")
  get_filename_component(_divvy_include "${_divvy_lib}/../../include/divvy" ABSOLUTE)
endif()
if(NOT TARGET divvy::runtime)
  add_library(divvy::runtime SHARED IMPORTED)
  set_target_properties(divvy::runtime PROPERTIES
    IMPORTED_LOCATION "${_divvy_lib}/libdivvy.so"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${_divvy_include}"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_LINK_LIBRARIES
      "absl::flags;absl::flat_hash_map;absl::span;absl::status;absl::statusor;absl::strings;absl::time;Threads::Threads"
    # By the build id, tasks find out whether they run different builds of the program.
    INTERFACE_LINK_OPTIONS "LINKER:--build-id")
  add_library(divvy::divvy STATIC IMPORTED)
  set_target_properties(divvy::divvy PROPERTIES
    IMPORTED_LOCATION "${_divvy_lib}/libdivvy_main.a"
    INTERFACE_LINK_LIBRARIES divvy::runtime)
endif()
unset(_divvy_lib)
unset(_divvy_include)
