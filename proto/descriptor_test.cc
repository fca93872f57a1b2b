// Compares the compiled public API with tests/golden/ateapi_descriptor.txt, so that no edit of
// ateapi.proto can change a name, number, type or label that belongs to the public system.

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include "ateapi/ateapi.pb.h"

namespace torpor {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::DescriptorProto;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::MethodDescriptor;

// Fields and enum values from here on are Torpor's own.
constexpr int kFirstOwnNumber = 1000;

using Lines = std::vector<std::string>;

std::string TypeOf(const FieldDescriptor& field) {
  if (field.is_map()) {
    return "map<" + TypeOf(*field.message_type()->map_key()) + "," +
           TypeOf(*field.message_type()->map_value()) + ">";
  }
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

// Presence counts as part of the label: it decides what an older client sends for a zero.
std::string LabelOf(const FieldDescriptor& field) {
  if (field.real_containing_oneof() != nullptr) {
    return "oneof:" + field.real_containing_oneof()->name();
  }
  if (field.is_repeated()) return "repeated";
  return field.has_optional_keyword() ? "explicit-optional" : "optional";
}

void DescribeEnum(const EnumDescriptor& type, Lines* lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() >= kFirstOwnNumber) continue;
    lines->push_back("enum " + type.full_name() + " " + type.value(i)->name() + " " +
                     std::to_string(type.value(i)->number()));
  }
}

void DescribeMessage(const Descriptor& type, Lines* lines) {
  if (type.options().map_entry()) return;
  lines->push_back("message " + type.full_name());
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.number() >= kFirstOwnNumber) continue;
    lines->push_back(field.full_name() + " = " + std::to_string(field.number()) + " " +
                     TypeOf(field) + " " + LabelOf(field));
  }
  for (int i = 0; i < type.reserved_range_count(); ++i) {
    for (int n = type.reserved_range(i)->start; n < type.reserved_range(i)->end; ++n) {
      lines->push_back("reserved " + type.full_name() + " " + std::to_string(n));
    }
  }
  for (int i = 0; i < type.reserved_name_count(); ++i) {
    lines->push_back("reserved " + type.full_name() + " " + type.reserved_name(i));
  }
  for (int i = 0; i < type.enum_type_count(); ++i) DescribeEnum(*type.enum_type(i), lines);
  for (int i = 0; i < type.nested_type_count(); ++i) DescribeMessage(*type.nested_type(i), lines);
}

// Everything of `file` that belongs to the public API, sorted.
Lines Describe(const FileDescriptor& file) {
  Lines lines;
  for (int i = 0; i < file.enum_type_count(); ++i) DescribeEnum(*file.enum_type(i), &lines);
  for (int i = 0; i < file.message_type_count(); ++i) {
    DescribeMessage(*file.message_type(i), &lines);
  }
  for (int i = 0; i < file.service_count(); ++i) {
    for (int j = 0; j < file.service(i)->method_count(); ++j) {
      const MethodDescriptor& method = *file.service(i)->method(j);
      const bool unary = !method.client_streaming() && !method.server_streaming();
      lines.push_back("rpc " + method.full_name() + " " + method.input_type()->full_name() + " " +
                      method.output_type()->full_name() + (unary ? "" : " stream"));
    }
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

Lines ReadGolden() {
  std::ifstream in(std::string(TORPOR_SOURCE_DIR) + "/tests/golden/ateapi_descriptor.txt");
  EXPECT_TRUE(in.is_open());
  Lines lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

Lines Minus(const Lines& a, const Lines& b) {
  Lines result;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
  return result;
}

const FileDescriptor& Compiled() { return *ateapi::Actor::descriptor()->file(); }

// A pool of its own with the compiled file after `edit`; the pool owns what Describe reads.
Lines DescribeEdited(const std::function<void(FileDescriptorProto*)>& edit) {
  DescriptorPool pool;
  std::function<void(const FileDescriptor&)> add_imports = [&](const FileDescriptor& file) {
    for (int i = 0; i < file.dependency_count(); ++i) {
      const FileDescriptor& import = *file.dependency(i);
      if (pool.FindFileByName(import.name()) != nullptr) continue;
      add_imports(import);
      FileDescriptorProto proto;
      import.CopyTo(&proto);
      pool.BuildFile(proto);
    }
  };
  add_imports(Compiled());
  FileDescriptorProto proto;
  Compiled().CopyTo(&proto);
  edit(&proto);
  const FileDescriptor* edited = pool.BuildFile(proto);
  EXPECT_NE(edited, nullptr);
  return edited == nullptr ? Lines{} : Describe(*edited);
}

DescriptorProto* FindMessage(FileDescriptorProto* file, const std::string& name) {
  for (DescriptorProto& message : *file->mutable_message_type()) {
    if (message.name() == name) return &message;
  }
  ADD_FAILURE() << "no message " << name;
  return nullptr;
}

FieldDescriptorProto* FindField(FileDescriptorProto* file, const std::string& message,
                                const std::string& name) {
  for (FieldDescriptorProto& field : *FindMessage(file, message)->mutable_field()) {
    if (field.name() == name) return &field;
  }
  ADD_FAILURE() << "no field " << message << "." << name;
  return nullptr;
}

TEST(DescriptorTest, CompiledApiEqualsGolden) {
  const Lines golden = ReadGolden();
  const Lines compiled = Describe(Compiled());
  EXPECT_EQ(Minus(golden, compiled), Lines{}) << "in the golden file, but not in ateapi.proto";
  EXPECT_EQ(Minus(compiled, golden), Lines{}) << "in ateapi.proto, but not in the golden file";
}

TEST(DescriptorTest, GoldenNamesEverythingOnce) {
  const Lines golden = ReadGolden();
  EXPECT_EQ(std::adjacent_find(golden.begin(), golden.end()), golden.end());
}

// Our own fields obey it as well: a oneof keeps the last of two silently.
TEST(DescriptorTest, NoMessageHasAOneof) {
  for (int i = 0; i < Compiled().message_type_count(); ++i) {
    const Descriptor& message = *Compiled().message_type(i);
    EXPECT_EQ(message.real_oneof_decl_count(), 0) << message.full_name();
  }
}

// Adding a field of our own must not look like a change of the public API.
TEST(DescriptorTest, OwnFieldsAreLeftOut) {
  const Lines edited = DescribeEdited([](FileDescriptorProto* file) {
    FieldDescriptorProto* field = FindMessage(file, "Atespace")->add_field();
    field->set_name("ours");
    field->set_number(kFirstOwnNumber);
    field->set_type(FieldDescriptorProto::TYPE_STRING);
    field->set_label(FieldDescriptorProto::LABEL_OPTIONAL);
  });
  EXPECT_EQ(edited, Describe(Compiled()));
}

struct Break {
  const char* name;
  std::function<void(FileDescriptorProto*)> edit;
};

// A comparison that never fails proves nothing, so every kind of break is tried.
TEST(DescriptorTest, EveryKindOfBreakIsSeen) {
  const Break kBreaks[] = {
      {"number", [](auto* f) { FindField(f, "Tag", "scope")->set_number(9); }},
      {"name", [](auto* f) { FindField(f, "Tag", "scope")->set_name("extent"); }},
      {"type",
       [](auto* f) {
         FindField(f, "HTTPGetAction", "port")->set_type(FieldDescriptorProto::TYPE_INT64);
       }},
      {"label",
       [](auto* f) {
         FindField(f, "Binding", "members")->set_label(FieldDescriptorProto::LABEL_OPTIONAL);
       }},
      {"message type",
       [](auto* f) { FindField(f, "Tag", "source_actor")->set_type_name(".ateapi.TagStatus"); }},
      {"oneof",
       [](auto* f) {
         FindMessage(f, "Ports")->add_oneof_decl()->set_name("which");
         FindField(f, "Ports", "all")->set_oneof_index(0);
       }},
      {"new field below 1000",
       [](auto* f) {
         FieldDescriptorProto* field = FindMessage(f, "Atespace")->add_field();
         field->set_name("extra");
         field->set_number(kFirstOwnNumber - 1);
         field->set_type(FieldDescriptorProto::TYPE_STRING);
         field->set_label(FieldDescriptorProto::LABEL_OPTIONAL);
       }},
      {"removed field", [](auto* f) { FindMessage(f, "EnvVar")->mutable_field()->RemoveLast(); }},
      {"enum value", [](auto* f) { f->mutable_enum_type(0)->mutable_value(1)->set_number(77); }},
      {"enum name", [](auto* f) { f->mutable_enum_type(0)->mutable_value(1)->set_name("OTHER"); }},
      {"reserved number", [](auto* f) { FindMessage(f, "Worker")->clear_reserved_range(); }},
      {"reserved name",
       [](auto* f) { FindMessage(f, "TrustBundleDataSource")->clear_reserved_name(); }},
      {"removed method", [](auto* f) { f->mutable_service(0)->mutable_method()->RemoveLast(); }},
      {"streaming method",
       [](auto* f) { f->mutable_service(0)->mutable_method(0)->set_server_streaming(true); }},
      {"method result",
       [](auto* f) { f->mutable_service(0)->mutable_method(0)->set_output_type(".ateapi.Actor"); }},
  };
  const Lines unedited = Describe(Compiled());
  for (const Break& change : kBreaks) {
    EXPECT_NE(DescribeEdited(change.edit), unedited) << change.name;
  }
}

}  // namespace
}  // namespace torpor
