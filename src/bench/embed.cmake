# Writes OUT: the scenario files of FILES as one table of strings.
set(table "")
foreach(file ${FILES})
  file(READ ${file} text)
  get_filename_component(name ${file} NAME)
  string(APPEND table "      {\"bench/scenarios/${name}\", R\"yaml(${text})yaml\"},\n")
endforeach()
file(WRITE ${OUT} "#include \"bench/scenario.h\"

namespace torpor::bench {

const std::vector<ScenarioText>& BuiltinScenarioTexts() {
  static const std::vector<ScenarioText> texts = {
${table}  };
  return texts;
}

}  // namespace torpor::bench
")
