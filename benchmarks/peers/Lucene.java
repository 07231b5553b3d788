import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.CharArraySet;
import org.apache.lucene.analysis.LowerCaseFilter;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.Tokenizer;
import org.apache.lucene.analysis.cjk.CJKAnalyzer;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.en.EnglishPossessiveFilter;
import org.apache.lucene.analysis.fr.FrenchAnalyzer;
import org.apache.lucene.analysis.snowball.SnowballFilter;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.analysis.standard.StandardTokenizer;
import org.apache.lucene.analysis.tokenattributes.CharTermAttribute;
import org.apache.lucene.analysis.util.ElisionFilter;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.LogDocMergePolicy;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.similarities.BM25Similarity;
import org.apache.lucene.store.ByteBuffersDirectory;

/**
 * Apache Lucene's own tokens and rankings; benchmarks/peers/lucene.py starts it.
 *
 * <pre>
 * java -cp 'lucene/*' Lucene.java tokens < lines                            of ANALYSER TAB TEXT: tokens between tabs
 * java -cp 'lucene/*' Lucene.java search ANALYSER K1 B TITLES K < queries   query row, title row, score; best first
 * </pre>
 *
 * Analysers: those of `analyser` below. A query is one optional TermQuery for each token of it; Lucene joins equal ones
 * and adds up their boosts, so a word that occurs twice counts twice.
 */
public final class Lucene {
  private static final String FIELD = "title";

  public static void main(String[] arguments) throws IOException {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8)) {
      if (arguments[0].equals("tokens")) {
        Map<String, Analyzer> analysers = new HashMap<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
          int end = line.indexOf('\t');
          Analyzer analyser = analysers.computeIfAbsent(line.substring(0, end), Lucene::analyser);
          output.append(String.join("\t", tokens(analyser, line.substring(end + 1)))).append('\n');
        }
        return;
      }
      Analyzer analyser = analyser(arguments[1]);
      float k1 = Float.parseFloat(arguments[2]), b = Float.parseFloat(arguments[3]);
      IndexSearcher searcher = index(analyser, new BM25Similarity(k1, b), Path.of(arguments[4]));
      int best = Integer.parseInt(arguments[5]), row = 0;
      IndexSearcher.setMaxClauseCount(Integer.MAX_VALUE);
      for (String query = input.readLine(); query != null; query = input.readLine(), row++) {
        BooleanQuery.Builder asked = new BooleanQuery.Builder();
        for (String token : tokens(analyser, query)) {
          asked.add(new TermQuery(new Term(FIELD, token)), BooleanClause.Occur.SHOULD);
        }
        for (ScoreDoc title : searcher.search(asked.build(), best).scoreDocs) {
          output.append(row + "\t" + title.doc + "\t" + title.score + "\n");
        }
      }
    }
  }

  /**
   * `standard` and `english` are StandardAnalyzer and EnglishAnalyzer, `cjk` is CJKAnalyzer without stop words;
   * `french-snowball` and so on are words, lower case and the language's Snowball stemmer, without stop words.
   */
  private static Analyzer analyser(String name) {
    if (name.equals("standard")) {
      return new StandardAnalyzer();
    }
    if (name.equals("english")) {
      return new EnglishAnalyzer();
    }
    if (name.equals("cjk")) {
      return new CJKAnalyzer(CharArraySet.EMPTY_SET);
    }
    String language = name.substring(0, name.indexOf("-snowball"));
    return new Analyzer() {
      @Override
      protected TokenStreamComponents createComponents(String field) {
        Tokenizer words = new StandardTokenizer();
        TokenStream tokens = words;
        if (language.equals("english")) {
          tokens = new EnglishPossessiveFilter(tokens);
        } else if (language.equals("french")) {
          tokens = new ElisionFilter(tokens, FrenchAnalyzer.DEFAULT_ARTICLES);
        }
        tokens = new LowerCaseFilter(tokens);
        String stemmer = language.substring(0, 1).toUpperCase(Locale.ROOT) + language.substring(1);
        return new TokenStreamComponents(words, new SnowballFilter(tokens, stemmer));
      }
    };
  }

  private static List<String> tokens(Analyzer analyser, String text) throws IOException {
    List<String> tokens = new ArrayList<>();
    try (TokenStream stream = analyser.tokenStream(FIELD, text)) {
      CharTermAttribute term = stream.addAttribute(CharTermAttribute.class);
      stream.reset();
      while (stream.incrementToken()) {
        tokens.add(term.toString());
      }
      stream.end();
    }
    return tokens;
  }

  /** A searcher of the lines of a file, whose documents are numbered as the lines are. */
  private static IndexSearcher index(Analyzer analyser, BM25Similarity similarity, Path titles) throws IOException {
    ByteBuffersDirectory folder = new ByteBuffersDirectory();
    IndexWriterConfig config = new IndexWriterConfig(analyser).setSimilarity(similarity);
    config.setMergePolicy(new LogDocMergePolicy()); // which merges neighbours alone, so that the order stays
    try (IndexWriter writer = new IndexWriter(folder, config);
        BufferedReader lines = Files.newBufferedReader(titles)) {
      for (String title = lines.readLine(); title != null; title = lines.readLine()) {
        Document document = new Document();
        document.add(new TextField(FIELD, title, Field.Store.NO));
        writer.addDocument(document);
      }
      writer.forceMerge(1);
    }
    IndexSearcher searcher = new IndexSearcher(DirectoryReader.open(folder));
    searcher.setSimilarity(similarity);
    return searcher;
  }
}
